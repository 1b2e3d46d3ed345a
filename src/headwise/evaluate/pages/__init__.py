"""HTML documents, figures and statistics for reports."""
