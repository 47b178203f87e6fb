"""Figures: pure functions from answers to Plotly figures as plain dictionaries.

Each figure is `{"data": […], "layout": {…}}` in the light colours of `static/palette.json`; the
page exchanges them for the dark ones. `layout.meta` says what the figure shows in words and
numbers (see `caption.Meta`), so that a page, a notebook and a screen reader tell the same.
"""
