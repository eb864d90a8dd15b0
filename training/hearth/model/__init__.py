"""The model: where it comes from (`source`, `fetch`), and what computes it (`seam`)."""
