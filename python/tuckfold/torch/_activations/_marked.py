"""The class of a wrapped model, by which torch.compile tells it from a plain one.

torch.compile reuses what it compiled for another model of the same class, and does not look at hooks.
It does look at classes, once attributes have changed. So a wrapped model gets a subclass of its own class with the same name. Where
gradients would differ, so do all of its parts, which may be compiled for themselves after a graph break.
"""

from __future__ import annotations

import copyreg
import weakref
from collections.abc import Iterable
from typing import Any

from torch import nn

# Strong: torch.compile knows a class by its address, which must not become that of another one. So
# wrapping again in the same way finds the graphs that there are, too.
_known: dict[tuple[type, str], type] = {}
_TOUCHED = "_tuckfold_touched"


def _reduce_ex(self: nn.Module, protocol: int) -> Any:
    """Copies and pickles are of the class that the model had."""
    marked = type(self)
    plain = marked.__mro__[1]
    make, arguments, *rest = super(marked, self).__reduce_ex__(protocol)
    if make is copyreg.__newobj__ and arguments == (marked,):
        # pickle refuses __newobj__ for a class that is not the object's.
        return copyreg._reconstructor, (plain, object, None), *rest
    return make, tuple(plain if a is marked else a for a in arguments), *rest


def _marked(plain: type, how: str) -> type | None:
    made = _known.get((plain, how))
    if made is None:
        names = {
            "__module__": plain.__module__,
            "__qualname__": plain.__qualname__,
            "__doc__": plain.__doc__,
            "__reduce_ex__": _reduce_ex,
        }
        try:
            made = _known[plain, how] = type(plain)(plain.__name__, (plain,), names)
        except TypeError:
            return None
    return made


class Marks:
    """The classes of modules while a model is wrapped.

    Args:
        modules: those that get a subclass.
        how: equal for models that are wrapped in the same way.
    """

    def __init__(self, modules: Iterable[nn.Module], how: str) -> None:
        self._classes: weakref.WeakKeyDictionary[nn.Module, tuple[type, type]] = (
            weakref.WeakKeyDictionary()
        )
        for module in modules:
            made = _marked(type(module), how)
            if made is not None:
                self._classes[module] = (type(module), made)
        self.put()

    def put(self) -> None:
        self._change(0, 1)

    def take(self) -> None:
        """Leaves modules with the classes that they had."""
        self._change(1, 0)

    def _change(self, now: int, then: int) -> None:
        for module, classes in self._classes.items():
            if type(module) is classes[now]:
                try:
                    module.__class__ = classes[then]
                except TypeError:  # such as one of TorchScript
                    continue
                _touch(module)


def _touch(module: nn.Module) -> None:
    """torch.compile looks at the class of a module that it knows only where attributes have changed since."""
    attributes = vars(module)
    attributes[_TOUCHED] = True
    del attributes[_TOUCHED]
