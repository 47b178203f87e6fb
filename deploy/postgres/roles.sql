-- Run once, when the database is created, as the superuser that nothing else logs in as.
-- Three logins: the owner migrates, workers write, the API reads. The group roles are the ones
-- that `groktime db migrate` grants rights to.
\set ON_ERROR_STOP on
\set owner_password `cat "$SECRETS/owner_password"`
\set worker_password `cat "$SECRETS/worker_password"`
\set api_password `cat "$SECRETS/api_password"`

CREATE ROLE groktime_reader NOLOGIN;
CREATE ROLE groktime_writer NOLOGIN;
CREATE ROLE groktime_owner LOGIN PASSWORD :'owner_password';
CREATE ROLE groktime_worker LOGIN PASSWORD :'worker_password' IN ROLE groktime_writer;
CREATE ROLE groktime_api LOGIN PASSWORD :'api_password' IN ROLE groktime_reader;

ALTER DATABASE groktime OWNER TO groktime_owner;
REVOKE ALL ON DATABASE groktime FROM PUBLIC;
GRANT CONNECT ON DATABASE groktime TO groktime_reader, groktime_writer;
-- Suites are registered through a temporary table.
GRANT TEMPORARY ON DATABASE groktime TO groktime_writer;
