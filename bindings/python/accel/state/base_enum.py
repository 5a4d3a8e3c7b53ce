# SPDX-License-Identifier: Apache-2.0
"""Base of the enums of generated/enums.py: a member is also the text itself, `DistributedType.MULTI_CPU == "MULTI_CPU"`."""

import enum


class EnumWithContains(enum.EnumMeta):
    def __contains__(cls, value):
        return value in (member.value for member in cls)


class BaseEnum(str, enum.Enum, metaclass=EnumWithContains):
    def __str__(self):
        return self.value

    @classmethod
    def list(cls):
        return [member.value for member in cls]


class NamedEnum(BaseEnum):
    """Whose members are shown with their class, as Accelerate's of the same names: DistributedType.NO."""

    __str__ = enum.Enum.__str__
