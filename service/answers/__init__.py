"""Questions put to a suite: read its runs, compute, and answer with the answer's making.

Every module holds one question: a frozen dataclass of the answer and the function that gives
it. Routes, figures and reports all call these, so a number is the same wherever it is shown.
All answers are made of plain values (no arrays, no infinities): a quantity that does not exist
is None, and a status or a count beside it says why.
"""
