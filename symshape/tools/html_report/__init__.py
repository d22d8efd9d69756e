"""The page that ``Report.html`` writes: what ``symshape.explain`` tells of a compile, as one HTML file."""
