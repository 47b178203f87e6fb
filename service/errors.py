"""Every error a user can meet, and what each one means.

GroktimeError
├── InputError            a value given by the user is not accepted
│   ├── SuiteError        a suite file or name is wrong
│   └── AnalysisError     a question the data cannot be asked as put
│       └── QuestionError names parameter, value and what is accepted (service.answers.question)
│           ├── Unknown   what was named does not exist
│           ├── Ambiguous several settings match; lists the values to choose from
│           └── NotEnough the runs this needs have not been trained yet
├── ConfigurationError    a setting, device or tool is missing or unsafe
├── DatabaseError         the results database cannot be used
│   ├── SchemaError       its schema is older or newer than this code
│   └── DumpError         a dump file is corrupt, truncated or too new
├── EngineError           training cannot start or go on
│   ├── CheckpointError   a checkpoint is corrupt or of another engine
│   └── StackError        runs that cannot share one stack were put into one
├── SweepError            the cluster cannot run what was asked
└── Refused               the API refused a client's question (api.client)
"""

from __future__ import annotations


class GroktimeError(Exception):
    """Base of all errors raised on purpose; its text is one line for the user."""


class InputError(GroktimeError):
    """A value given by the user is not accepted; names the field, the value and what is."""


class SuiteError(InputError):
    """A suite does not exist, does not parse, or asks for runs that cannot exist."""


class AnalysisError(InputError):
    """The analysis cannot be asked this way, such as a threshold above the stopping one."""


class ConfigurationError(GroktimeError):
    """A setting, a device or a tool that was asked for is missing or unsafe."""


class DatabaseError(GroktimeError):
    """The results database cannot be reached or refused the work."""


class SchemaError(DatabaseError):
    """The database's schema is not the one this code works with."""


class DumpError(DatabaseError):
    """A dump file is corrupt, truncated or written by a newer version."""


class EngineError(GroktimeError):
    """Training cannot start or cannot go on."""


class CheckpointError(EngineError):
    """A checkpoint is corrupt, truncated, or was written by another engine."""


class StackError(EngineError):
    """Runs whose shapes differ were given to one stack."""


class SweepError(GroktimeError):
    """The cluster cannot run what was asked, such as more GPUs than it has."""
