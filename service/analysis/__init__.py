"""The science of groktime: arrays and frames in, frozen dataclasses out.

Nothing here knows of the database, of Ray or of the web. The inputs, all in `inputs`:

FirstPassages   one kind of run in one cell against one threshold: width, params (P), seed,
                epoch (float, NaN = not reached), last_epoch, diverged, as parallel arrays with
                one entry per finished run; missing {width: runs that are not there}; clock,
                threshold and steps_per_epoch come along.
GrokRuns        runs on the structured task: e_train, e_val, t_gen (NaN = never) instead of
                epoch; `.generalisation()` gives the FirstPassages of T_gen.
CapacityRuns    width, params, n, bits (M_T) and the vocabulary.
Cells           a DataFrame, one row per cell: see `cells`.

Two conventions everywhere: method="paper" reproduces the released code, method="robust" (the
default) takes censoring into account and says what the data cannot tell.
"""

# Part of every cache key: raise it whenever an answer changes for the same runs.
ANALYSIS_VERSION = 9
