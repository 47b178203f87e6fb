"""The views people ask in SQL: run_summary, cell_summary and curve_accuracy."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Comments of view columns that carry a column of runs or curve unchanged.
COPY_COMMENTS = """
DO $$
DECLARE item record;
BEGIN
    FOR item IN
        SELECT v.attname, col_description(t.attrelid, t.attnum) AS words
        FROM pg_attribute v
        JOIN pg_attribute t ON t.attname = v.attname AND t.attnum > 0
            AND t.attrelid IN ('runs'::regclass, 'curve'::regclass)
        WHERE v.attrelid = '{view}'::regclass AND v.attnum > 0
            AND col_description(v.attrelid, v.attnum) IS NULL
        ORDER BY t.attrelid = 'runs'::regclass
    LOOP
        EXECUTE format('COMMENT ON COLUMN {view}.%I IS %L', item.attname, item.words);
    END LOOP;
END $$
"""

SPEC = """r.kind, r.task, r.prime, r.operation, r.train_fraction, r.split, r.n_train, r.n_val,
    r.vocabulary, r.k_mem, r.architecture, r.width, r.depth, r.heads, r.positions, r.norm, r.ffn,
    r.released_head_projection, r.dropout, r.init_scale, r.params, r.lr, r.beta1, r.beta2, r.eps,
    r.weight_decay, r.batch_size, r.stop_rule, r.stop_train, r.stop_val, r.max_epochs,
    r.eval_train, r.seed"""

# Everything but the width, the seed and the kind's own dataset size: what makes a cell.
SETTING = """r.kind, r.prime, r.task, r.operation, r.train_fraction, r.split, r.n_train, r.n_val,
    r.architecture, r.depth, r.heads, r.positions, r.norm, r.ffn, r.released_head_projection,
    r.dropout, r.init_scale, r.lr, r.weight_decay, r.batch_size"""

# Elements 49 and 50 of the ladder are 98 % and 99 %. greatest(0, ...) would make a censored delay
# 0, since greatest passes over NULL.
DELAY = """CASE WHEN r.first_val[49] < r.first_online[50] THEN 0
    ELSE r.first_val[49] - r.first_online[50] END"""

RUN_SUMMARY = f"""
SELECT r.id, r.key, {SPEC},
    (r.n_train + r.batch_size - 1) / r.batch_size AS steps_per_epoch,
    r.state, r.attempt, r.last_epoch,
    r.first_online[50] AS e_train_99, r.first_eval[50] AS e_train_eval_99,
    r.first_val[49] AS e_val_98, r.first_val[50] AS e_val_99,
    {DELAY} AS delay,
    r.final_train_loss, r.final_train_correct::float8 / r.n_train AS final_train_accuracy,
    r.final_train_correct_eval::float8 / r.n_train AS final_train_accuracy_eval,
    r.final_val_loss, r.final_val_correct::float8 / nullif(r.n_val, 0) AS final_val_accuracy,
    r.final_weight_norm, r.best_train_loss, r.bits, r.bits / r.params AS bits_per_parameter,
    r.stopped_by, r.reason, r.seconds, r.device, r.engine, r.fingerprint,
    r.created_at, r.closed_at
FROM runs r
"""

CELL_SUMMARY = f"""
SELECT s.name AS suite, {SETTING}, r.width, r.params,
    count(*) AS runs, count(*) FILTER (WHERE sr.inherited) AS inherited,
    count(*) FILTER (WHERE r.state = 'done') AS done,
    count(*) FILTER (WHERE r.state = 'failed') AS failed,
    count(*) FILTER (WHERE r.state IN ('pending', 'running', 'stale')) AS missing,
    count(r.first_online[50]) AS reached_train_99,
    count(r.first_val[50]) AS reached_val_99,
    percentile_disc(0.5) WITHIN GROUP (ORDER BY r.first_online[50]) AS e_train_99_median_reached,
    percentile_disc(0.5) WITHIN GROUP (ORDER BY r.first_val[50]) AS e_val_99_median_reached,
    min({DELAY}) AS delay_min,
    max(r.bits) AS bits_max
FROM suites s
JOIN suite_runs sr ON sr.suite_id = s.id
JOIN runs r ON r.id = sr.run_id
GROUP BY s.name, {SETTING}, r.width, r.params
"""

CURVE_ACCURACY = """
SELECT c.run_id, c.epoch, c.train_loss,
    c.train_correct::float8 / r.n_train AS train_accuracy,
    c.train_correct_eval::float8 / r.n_train AS train_accuracy_eval,
    c.val_loss, c.val_correct::float8 / nullif(r.n_val, 0) AS val_accuracy,
    c.bits, c.weight_norm
FROM curve c JOIN runs r ON r.id = c.run_id
"""

VIEWS = (
    (
        "run_summary",
        "Runs without their arrays: first passages at 98 % and 99 %, accuracies, delay",
        RUN_SUMMARY,
        {
            "steps_per_epoch": "optimiser steps an epoch, the last partial batch included",
            "e_train_99": "first epoch with online training accuracy >= 99 %; NULL: never",
            "e_train_eval_99": "first epoch with eval-clock training accuracy >= 99 %; NULL: never",
            "e_val_98": "first epoch with validation accuracy >= 98 %; NULL: never",
            "e_val_99": "first epoch with validation accuracy >= 99 %; NULL: never",
            "delay": "generalisation delay max(0, e_val_98 - e_train_99); NULL: censored",
            "final_train_accuracy": "online training accuracy of the last epoch",
            "final_train_accuracy_eval": "eval-clock training accuracy of the last epoch",
            "final_val_accuracy": "validation accuracy of the last epoch",
            "bits_per_parameter": "M_T of the last epoch over P",
        },
    ),
    (
        "cell_summary",
        "Per suite, kind, cell (one prime at one setting) and width: seeds counted and summarised",
        CELL_SUMMARY,
        {
            "suite": "name of the suite",
            "runs": "runs (seeds) of the suite here, inherited ones included",
            "inherited": "of these, inherited from another suite",
            "done": "runs that are done",
            "failed": "runs that failed, such as diverged",
            "missing": "runs pending, running or stale",
            "reached_train_99": "runs whose online training accuracy reached 99 %",
            "reached_val_99": "runs whose validation accuracy reached 99 %",
            "e_train_99_median_reached": "median first passage of those that reached (biased low)",
            "e_val_99_median_reached": "median first passage of those that reached (biased low)",
            "delay_min": "least generalisation delay over seeds; NULL: none uncensored",
            "bits_max": "greatest M_T of the last epoch",
        },
    ),
    (
        "curve_accuracy",
        "The curve with accuracies in place of counts",
        CURVE_ACCURACY,
        {
            "train_accuracy": "online clock: dropout on, weights moving",
            "train_accuracy_eval": "eval clock: after the epoch, dropout off",
            "val_accuracy": "after the epoch, dropout off; NULL: no validation set",
        },
    ),
)


def upgrade() -> None:
    """Create the views and say what each column means."""
    for name, comment, query, columns in VIEWS:
        op.execute(f"CREATE VIEW {name} AS {query}")
        op.execute(f"COMMENT ON VIEW {name} IS {_literal(comment)}")
        for column, text in columns.items():
            op.execute(f"COMMENT ON COLUMN {name}.{column} IS {_literal(text)}")
        # A view's column that is a table's keeps the table's words.
        op.execute(COPY_COMMENTS.format(view=name))


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
