"""The methods of a port (an interface such as `ProxyPool`) that one process can call in another.

The port's annotations define the types.

The server has a table of these methods, and the client has one line for each:

    METHODS = methods_of(ProxyPool)

    class RemotePool(RpcClient):
        renew = remote(ProxyPool.renew)
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec

P = ParamSpec("P")
R = TypeVar("R")


class Method:
    """A coroutine method of a port, and the encoding of its calls: all arguments are sent, in their order."""

    def __init__(self, function: Callable[..., Any]) -> None:
        hints = get_type_hints(function)
        parameters = [*inspect.signature(function).parameters.values()][1:]
        self.name = function.__name__
        self._parameters = [(each.name, each.default) for each in parameters]
        self._keywords = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
        types = tuple(_decodable(hints[each.name]) for each in parameters)
        self.decode_arguments = msgspec.msgpack.Decoder(tuple[types]).decode  # type: ignore[valid-type]
        self.decode_result = msgspec.msgpack.Decoder(hints["return"]).decode

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return all arguments of a call, with defaults for the omitted ones."""
        return (*args, *[kwargs.get(name, default) for name, default in self._parameters[len(args) :]])

    def invoke(self, target: Any, arguments: tuple[Any, ...]) -> Awaitable[Any]:
        if not self._keywords:
            return cast(Awaitable[Any], getattr(target, self.name)(*arguments))
        positional = len(arguments) - len(self._keywords)
        keywords = dict(zip(self._keywords, arguments[positional:], strict=True))
        return cast(Awaitable[Any], getattr(target, self.name)(*arguments[:positional], **keywords))


def _decodable(hint: Any) -> Any:
    """Decode an Iterable as a list."""
    return list[get_args(hint)] if get_origin(hint) is Iterable else hint  # type: ignore[misc]


def methods_of(port: type, *without: str) -> dict[str, Method]:
    """Return the coroutine methods of a port by name, except those in `without`."""
    own = {name: function for name, function in vars(port).items() if inspect.iscoroutinefunction(function)}
    return {name: Method(function) for name, function in own.items() if name not in without}


def remote(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Return a method with this signature that returns `self.call(name, *args, **kwargs)`."""
    name = method.__name__

    @wraps(method)
    def forward(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        return cast(Coroutine[Any, Any, R], self.call(name, *args, **kwargs))

    return forward


class Service:
    """Serves the methods of `target` to one peer."""

    cancels = True
    """Whether a call is cancelled when its caller cancels it or disconnects."""

    undelivered: Callable[[Method, Any], Awaitable[None]] | None = None
    """Called with a result that was not sent, because the caller had disconnected."""

    def __init__(self, methods: Mapping[str, Method], target: Any) -> None:
        self.methods = methods
        self.target = target

    async def schedule(self, serve: Callable[[], Awaitable[None]]) -> None:
        await serve()

    def answer(self, method: Method, arguments: tuple[Any, ...]) -> Awaitable[Any]:
        """Return the result of a call, or the encoded result as a `msgspec.Raw`."""
        return method.invoke(self.target, arguments)
