"""The dashboard: what ``bench/dashboard.py`` has measured as figures, a history with regressions, and one page."""
