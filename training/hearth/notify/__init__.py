"""Messages to a person's phone or chat about the end of a run, and about nodes that it waits for.

`watch`, `event` and `outbox` are the supervisor's part, standard library only. Each message is made
(`messages`) and sent (`send`, by the library apprise) in a child process of its own, so
that a server that does not answer delays nothing. The addresses hold tokens: the child reads them
from its standard input, and nothing that is written or logged shows more of them than the scheme.
"""
