"""The dashboard: turns what ``bench/dashboard.py`` measured into figures, a history with regressions, and a page."""
