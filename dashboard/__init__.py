"""The dashboard: Plotly figures built on the server, and the page that draws them.

`figures` turns answers into figure dictionaries, `page` is what the API mounts. The page asks
`/charts/{name}` for a figure and shows what its `layout.meta` says about it, so that a chart
never travels without its making.
"""
