"""Every error that crosses a layer, as one tree. `server/http/errors.py` maps it to HTTP.

FloorlineError
├── SettingsError              a flag, variable or file value that cannot be used
├── ModelError                 a checkpoint that cannot be read or that we do not support
├── RequestError               the caller's input; names the field
│   ├── InvalidJson            not JSON, or not an object
│   ├── UnsupportedMediaType   a body that is not application/json
│   ├── BodyTooLarge           more bytes than the limit
│   ├── BodyTooSlow            its bytes did not come in time
│   ├── HeadTooSlow            request line and headers did not come in time
│   ├── MissingParameter       a required field is absent
│   ├── InvalidType            a value of another type
│   ├── InvalidValue           a value outside its range
│   ├── UnsupportedParameter   known, not built, and would change the output
│   ├── EmptyPrompt            nothing to continue
│   ├── InvalidTokenId         not an id of the vocabulary
│   ├── ContextLengthExceeded  prompt, or prompt plus max_tokens, over the context limit
│   ├── TemplateFailed         the chat template refused the messages
│   ├── ModelNotFound          another model's name
│   └── InvalidApiKey          no key or a wrong one
└── ServiceError               our side; the caller may try again
    ├── Overloaded             the queue is full
    ├── ShuttingDown           draining
    ├── EngineDead             the engine process ended, and is started again
    ├── EngineStarting         it is not up for the first time yet
    └── GenerationFailed       a fault that belongs to one request
"""

from __future__ import annotations


class FloorlineError(Exception):
    """The root: everything that we raise on purpose."""


class SettingsError(FloorlineError):
    """A setting that cannot be used; the message names the flag and the limit."""


class ModelError(FloorlineError):
    """A checkpoint that cannot be read or that is not supported; the message names what and why."""


class RequestError(FloorlineError):
    """The caller's mistake. `param` is the dotted field, None where no field is to blame."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message, self.param = message, param


class InvalidJson(RequestError): ...


class UnsupportedMediaType(RequestError): ...


class BodyTooLarge(RequestError): ...


class BodyTooSlow(RequestError): ...


class HeadTooSlow(RequestError): ...


class MissingParameter(RequestError): ...


class InvalidType(RequestError): ...


class InvalidValue(RequestError): ...


class UnsupportedParameter(RequestError): ...


class EmptyPrompt(RequestError): ...


class InvalidTokenId(RequestError): ...


class ContextLengthExceeded(RequestError): ...


class TemplateFailed(RequestError): ...


class ModelNotFound(RequestError): ...


class InvalidApiKey(RequestError): ...


class ServiceError(FloorlineError):
    """Our side's trouble. `retry_after_s` is None where waiting does not help."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message, self.retry_after_s = message, retry_after_s


class Overloaded(ServiceError): ...


class ShuttingDown(ServiceError): ...


class EngineDead(ServiceError): ...


class EngineStarting(ServiceError): ...


class GenerationFailed(ServiceError): ...
