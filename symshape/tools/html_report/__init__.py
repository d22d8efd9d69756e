"""``Report.html``: the report of ``symshape.explain`` as one HTML file."""
