"""Which of a model's classes is which value of the label: by name, by what the data says, and never by silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.outcomes import example_of
from fairkit.data.roles import same_value, value_text
from fairkit.errors import ModelError, ParameterError, did_you_mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset
    from fairkit.settings import ModelOptions


def favorable_column(
    classes: Sequence[Any],
    label_values: Sequence[Any],
    favorable: Any,
    scores: NDArray[np.float64],
    is_favorable: NDArray[np.bool_] | None,
) -> tuple[int, str]:
    """Find which score column belongs to the favorable label.

    The classes that the model names decide; where they are numbers 0..K-1 and the label's values are not,
    the order of the label's values; where that could be read two ways, which column ranks the favorable
    rows higher.
    """
    if favorable is None:
        shown = " or ".join(repr(value_text(value)) for value in classes[:5])
        raise ModelError(
            f"which of the model's classes is good for the person, {shown}? There is no label: say so with "
            f"`favorable`, as in `favorable={example_of('', classes)}`"
        )
    named = [place for place, value in enumerate(classes) if same_value(value, favorable)]
    by_name = named[0] if len(named) == 1 and _same_kind(classes, label_values) else None
    if by_name is not None:
        return by_name, f"The model's class {value_text(classes[by_name])!r} is the favorable label."
    ordered = [i for i, value in enumerate(label_values) if same_value(value, favorable)]
    by_order = ordered[0] if ordered and len(label_values) == len(classes) else None
    if by_order is not None and (by_order == 1 or len(classes) > 2):
        against = is_favorable is not None and ranks_higher(scores[:, by_order], is_favorable) is False
        if against:
            raise ModelError(
                f"which of the model's classes {[value_text(c) for c in classes]} is the favorable label "
                f"{value_text(favorable)!r}? By the order of the label's values it is column {by_order}, but that "
                "one is higher for the other rows. Say which column it is, from 0, with `favorable_class`"
            )
        told = f"class {value_text(classes[by_order])} of the model stands for the favorable label {favorable!r}"
        return by_order, f"By the order of the label's values, {told} (`favorable_class` overrides)."
    if len(classes) == 2 and is_favorable is not None:
        return _by_ranking(classes, scores, is_favorable, favorable)
    raise ModelError(
        f"which of the model's classes {[value_text(c) for c in classes]} is the favorable label {favorable!r}? "
        "Say which column it is, from 0, with `favorable_class`"
    )


def _same_kind(classes: Sequence[Any], label_values: Sequence[Any]) -> bool:
    """Whether the model's classes are the label's values, or there is no label to compare with."""
    texts = {value_text(value) for value in classes}
    return not label_values or {value_text(value) for value in label_values} <= texts or _flags(texts, label_values)


def _flags(texts: set[str], label_values: Sequence[Any]) -> bool:
    return texts <= {"0", "1", "True", "False"} and all(isinstance(value, bool) for value in label_values)


def _by_ranking(
    classes: Sequence[Any], scores: NDArray[np.float64], is_favorable: NDArray[np.bool_], favorable: Any
) -> tuple[int, str]:
    """Choose the column that ranks favorable rows higher, if that is clear."""
    higher = ranks_higher(scores[:, 1], is_favorable)
    if higher is not None:
        place = int(higher)
        told = f"class {value_text(classes[place])} ranks the rows with label {favorable!r} higher"
        return (place, f"The model's {told} and is read as the favorable one (`favorable_class` overrides).")
    raise ModelError(
        f"which of the model's two classes is the favorable label {favorable!r}? "
        "Its scores do not tell; say which column it is with `favorable_class`, 0 or 1"
    )


def ranks_higher(scores: NDArray[np.float64], is_favorable: NDArray[np.bool_]) -> bool | None:
    """Tell whether favorable rows score higher: the area under the ROC curve is 4 standard errors from one half.

    None where it is not.
    """
    n1, n0 = int(is_favorable.sum()), int((~is_favorable).sum())
    if not n1 or not n0:
        return None
    area = roc_area(scores, is_favorable)
    error = np.sqrt((n1 + n0 + 1) / (12 * n1 * n0))
    return None if abs(area - 0.5) <= 4 * error else bool(area > 0.5)


def roc_area(scores: NDArray[np.float64], is_favorable: NDArray[np.bool_]) -> float:
    """Return the area under the ROC curve, ties counted half; there are rows of both labels."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    n1, n0 = int(is_favorable.sum()), int((~is_favorable).sum())
    return float((ranks[is_favorable].sum() - n1 * (n1 + 1) / 2) / (n1 * n0))


def check_signs(classes: Sequence[Any], label_values: Sequence[Any]) -> None:
    """Refuse labels -1 and 1 where the data has others: a 1 that means "usual" is no label 1."""
    texts = {value_text(value) for value in classes}
    known = [value_text(value) for value in label_values]
    if texts and texts <= {"-1", "1"} and "-1" in texts and not {"-1", "1"} <= set(known):
        raise ModelError(
            f"the model's labels are -1 and 1, and those of the data are {', '.join(known[:6]) or 'not there'}: a "
            "model that finds unusual rows (an IsolationForest, say) gives 1 to what is usual. Say which one stands "
            "for the favorable label with `favorable_class`: 0 for -1, 1 for 1"
        )


def line_up(
    classes: Sequence[Any],
    label_values: Sequence[Any],
    said: Sequence[str] | None,
    scores: NDArray[np.float64],
    labels: NDArray[np.int64] | None,
) -> tuple[tuple[int, ...], list[str]]:
    """Find the label's value of each of the model's classes.

    Names decide. Codes 0..K-1 are held against the data: a class's score must be higher for the rows with its own
    value than for those with any other class's value, in every pair of classes.
    """
    texts, names = [value_text(v) for v in label_values], [value_text(v) for v in classes]
    if said is not None:
        return _as_said(list(said), texts, names), []
    if set(names) <= set(texts):
        return tuple(texts.index(name) for name in names), []
    if len(names) != len(texts) or not _are_codes(names):
        unknown = next(name for name in names if name not in texts)
        hint = did_you_mean(unknown, texts, what="values of the label")
        raise ModelError(
            f"the model's class {unknown!r} is not among the label's values. {hint} Name the label's values in the "
            f"model's order with `classes` ({len(names)} of them: {', '.join(names[:8])})"
        )
    alphabetical = tuple(range(len(texts)))
    tried = list(dict.fromkeys([alphabetical, *_by_data(scores, labels)]))
    for places in tried:
        if labels is not None and _holds(places, scores, labels):
            return places, [_told(places, texts, labels, scores)]
    raise ModelError(
        f"which of the label's values {', '.join(texts[:8])} is which of the model's classes {names[0]} to "
        f"{names[-1]}? The data does not tell. Name the values in the model's order, class 0 first, with `classes` "
        f"(as in {','.join(texts[:4])}{',...' if len(texts) > 4 else ''})"
    )


def _are_codes(names: Sequence[str]) -> bool:
    return any(list(names) == [str(start + i) for i in range(len(names))] for start in (0, 1))


def _as_said(said: list[str], texts: Sequence[str], names: Sequence[str]) -> tuple[int, ...]:
    if len(said) != len(names):
        raise ModelError(
            f"`classes` names {len(said)} values, and the model has {len(names)} classes ({', '.join(names[:8])})"
        )
    for name in said:
        if name not in texts:
            hint = did_you_mean(name, texts, what="values of the label")
            raise ModelError(f"`classes` names {name!r}, which the label never has. {hint}")
    if len(set(said)) != len(said):
        raise ModelError(f"`classes` names {max(said, key=said.count)!r} twice")
    return tuple(texts.index(name) for name in said)


def _by_data(scores: NDArray[np.float64], labels: NDArray[np.int64] | None) -> list[tuple[int, ...]]:
    """Return the mapping in which each class goes to the value whose rows score highest in it, if it is one to one."""
    if labels is None:
        return []
    counts = np.bincount(labels, minlength=scores.shape[1]).astype(float)
    if (counts == 0).any():
        return []
    sums = np.zeros((scores.shape[1], scores.shape[1]))
    np.add.at(sums, labels, scores)
    places = (sums / counts[:, None]).argmax(axis=0)
    return [tuple(int(place) for place in places)] if len(set(places.tolist())) == len(places) else []


def _holds(places: Sequence[int], scores: NDArray[np.float64], labels: NDArray[np.int64]) -> bool:
    """Whether every pair of classes tells the rows of their two values apart, the right way round."""
    for one in range(len(places)):
        for other in range(one + 1, len(places)):
            rows = (labels == places[one]) | (labels == places[other])
            difference = scores[rows, one] - scores[rows, other]
            if ranks_higher(difference, labels[rows] == places[one]) is not True:
                return False
    return True


def _told(places: Sequence[int], texts: Sequence[str], labels: NDArray[np.int64], scores: NDArray[np.float64]) -> str:
    agree = float((np.asarray(places)[scores.argmax(axis=1)] == labels).mean())
    shown = ", ".join(texts[place] for place in places)
    order = "the label's own order" if list(places) == sorted(places) else "not the label's own order"
    return (
        f"The model's classes 0 to {len(texts) - 1} are read as {shown} ({order}): so they agree with {agree:.1%} "
        "of the first rows (`classes` names another order)."
    )


def of_two_classes(options: ModelOptions, dataset: Dataset) -> ModelOptions:
    """Return the options with `favorable_class` in place of the two classes of a binary task."""
    label = dataset.roles.favorable
    if options.classes is None or len(options.classes) != 2 or label is None:
        return options
    if options.task not in (None, "binary"):
        return options
    if options.favorable_class is not None:
        raise ParameterError("`classes` says which class is favorable; leave `favorable_class` out")
    places = [place for place, value in enumerate(options.classes) if value == value_text(label)]
    if not places:
        raise ParameterError(
            f"the favorable label {value_text(label)!r} is not among the classes {' and '.join(options.classes)}; name "
            "the label's values by `classes`, class 0 first"
        )
    return replace(options, classes=None, favorable_class=places[0])
