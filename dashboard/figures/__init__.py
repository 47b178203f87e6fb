"""Figures: pure functions from answers to Plotly figures as plain dictionaries.

Each figure is `{"data": […], "layout": {…}}` in the light colours of `static/palette.json`; the
page exchanges them for the dark ones. `layout.meta` says what the figure shows in words and
numbers (see `theme.Meta`), so that a page, a notebook and a screen reader tell the same.

chart                 function                                       answers
delay, crossing       delay.delay_figure                             delay crossing speeds regimes
speeds                crossing.speeds_figure                         speeds
regimes               delay.regimes_figure                           regimes
capacity              capacity.capacity_curves_figure                capacity
capacity_fit          capacity.capacity_fit_figure                   capacity
memorisation, law     memorisation.memorisation_fraction_figure      law
memorisation_inverse  memorisation.memorisation_capacity_figure      law
onset, tests          prediction.prediction_figure                   tests
residual              prediction.residual_figure (axis=)             tests
curves                curves.curves_figure                           curves of runs (run=, repeated)
coverage              progress.coverage_figure (kind=)               coverage
"""
