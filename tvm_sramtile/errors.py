"""Every error a user can meet, in one class tree."""

from __future__ import annotations


class SramtileError(Exception):
    """The root: catching it catches every error of this package."""


class SpecError(SramtileError, ValueError):
    """An accelerator spec that is wrong: names the source, the key, the value, and what is allowed."""


class OptionError(SramtileError, ValueError):
    """A compile option that is wrong: names the option, the value, and what is allowed."""


class ModelError(SramtileError, ValueError):
    """A model file or its inputs that cannot be used: names the file or the input, and what to do."""


class UnsupportedOp(SramtileError):
    """An operator the accelerator does not take: names the op, the attribute, and its value."""


class DoesNotFit(SramtileError):
    """No legal plan exists within the SRAM: names the op, the terms in bytes, the limit, the gap, and the levers."""


class CheckFailed(SramtileError):
    """An independent checker found a plan, a program, or a region's body that is wrong. A defect of its producer."""


class ProgramError(SramtileError, ValueError):
    """A program that does not follow the instruction set: names the command's index and the field."""


class EngineError(SramtileError, RuntimeError):
    """The simulated accelerator stopped: result code, command index, and the engine's own text."""


class ToolchainError(SramtileError):
    """A C compiler is missing or failed."""


class MissingDependency(SramtileError, ImportError):
    """An optional package is missing or the wrong one: names it and the extra that brings it."""
