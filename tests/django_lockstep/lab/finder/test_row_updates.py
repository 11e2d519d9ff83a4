"""Functions that leave a row's value to the UPDATE: what is written, and which shapes are left as they are."""

import ast
from textwrap import indent

import pytest
from django.db import models
from django.db.models.signals import post_save, pre_save

from django_lockstep.lab.finder.confirm.row_updates import edited, row_update
from tests.testapps.seeded_shop.racing.models import Product

READ = "row = Product.objects.get(pk=pk)"
CHECK = "if row.stock < n:\n    return False"
CHANGE = "row.stock -= n\nrow.save()"
REST = "Order.objects.create(product=row)"
AGAIN = 'row.refresh_from_db(fields=["stock"])'
UPDATE = 'if not Product.objects.filter(pk=row.pk, stock__gte=n).update(stock=F("stock") - n):\n    return False'
IN_PLACE = 'row.stock = F("stock") - n\nrow.save(update_fields=["stock"])'

NO_TYPE = "filter(pk=row.pk, content_type=None)"
NO_OBJECT = "filter(pk=row.pk).exclude(object_id=None)"


def updated(*statements: str, table: str = "racing_product") -> list[str]:
    """Return the statements of a function that reads and saves a row, as they are changed; none if they are not."""
    source = f"def sell(pk, n, data):\n{indent(chr(10).join(statements), '    ')}\n"
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    texts = list(enumerate(source.splitlines(), 1))
    read, save = (next(number for number, line in texts if text in line) for text in ("row = ", ".save("))
    edits, goes_on = row_update(source, function, lines=(read, save), table=table)
    assert goes_on == any("refresh_from_db" in text for _, _, text in edits)
    return [line[4:] for line in edited(source, edits).splitlines()[1:]] if edits else []


def lines(*statements: str) -> list[str]:
    return "\n".join(statements).splitlines()


@pytest.mark.parametrize(
    ("statements", "changes"),
    [
        ([CHECK, CHANGE], [UPDATE]),
        ([CHECK, CHANGE, REST], [UPDATE, AGAIN, REST]),
        ([CHECK, CHANGE, "return row.name, row.pk"], [UPDATE, "return row.name, row.pk"]),
        (["if row is None:\n    raise KeyError", CHECK, CHANGE], ["if row is None:\n    raise KeyError", UPDATE]),
        ([CHECK, "row.stock -= n  # one less\nrow.save()  # now"], [UPDATE]),
        ([CHANGE], [IN_PLACE]),
        ([CHANGE, REST], [IN_PLACE, AGAIN, REST]),
        ([CHANGE.replace("row.save()", 'row.save(update_fields=["stock"])')], [IN_PLACE]),
        (["row.stock = row.stock - n\nrow.save()"], [IN_PLACE]),
        (["if n < 0:\n    return False", CHANGE], ["if n < 0:\n    return False", IN_PLACE]),
        (
            ['row.stock += n - data["n"]', "row.save()"],
            ['row.stock = F("stock") + (n - data["n"])', 'row.save(update_fields=["stock"])'],
        ),
    ],
)
def test_the_value_is_checked_and_computed_in_the_update(statements: list[str], changes: list[str]) -> None:
    assert updated(READ, *statements) == lines(READ, *changes)


@pytest.mark.parametrize(
    ("test", "query"),
    [
        ("row.stock < n", "filter(pk=row.pk, stock__gte=n)"),
        ("row.stock <= 0", "filter(pk=row.pk, stock__gt=0)"),
        ("row.stock > n", "filter(pk=row.pk, stock__lte=n)"),
        ("row.stock >= n", "filter(pk=row.pk, stock__lt=n)"),
        ("n > row.stock", "filter(pk=row.pk, stock__gte=n)"),
        ("row.stock != n", "filter(pk=row.pk, stock=n)"),
        ("row.stock == 0", "filter(pk=row.pk).exclude(stock=0)"),
        ("not row.stock", "filter(pk=row.pk).exclude(stock=0)"),
        ("row.stock", "filter(pk=row.pk, stock=0)"),
        ('row.stock < data["n"] + 1', 'filter(pk=row.pk, stock__gte=data["n"] + 1)'),
        ("row.stock < row.id", 'filter(pk=row.pk, stock__gte=F("id"))'),
    ],
)
def test_a_check_has_an_opposite(test: str, query: str) -> None:
    update = f'if not Product.objects.{query}.update(stock=F("stock") - n):'

    assert updated(READ, f"if {test}:\n    return False", CHANGE) == lines(READ, update, "    return False")


@pytest.mark.parametrize(
    ("model", "table", "test", "attribute", "query"),
    [
        ("Shift", "racing_shift", "row.on_call", "on_call", "filter(pk=row.pk, on_call=False)"),
        ("Shift", "racing_shift", "not row.on_call", "on_call", "filter(pk=row.pk, on_call=True)"),
        ("Product", "racing_product", "row.name", "name", 'filter(pk=row.pk, name="")'),
        ("Product", "racing_product", "row.name == data", "name", "filter(pk=row.pk).exclude(name=data)"),
        ("LogEntry", "django_admin_log", "row.content_type", "content_type", NO_TYPE),
        ("LogEntry", "django_admin_log", "row.content_type is not None", "content_type", NO_TYPE),
        ("LogEntry", "django_admin_log", "row.object_id is None", "object_id", NO_OBJECT),
    ],
)  # fmt: skip
def test_a_value_is_set_once(model: str, table: str, test: str, attribute: str, query: str) -> None:
    read, change = READ.replace("Product", model), f"row.{attribute} = data\nrow.save()"
    update = f"if not {model}.objects.{query}.update({attribute}=data):"

    assert updated(read, f"if {test}:\n    return", change, table=table) == lines(read, update, "    return")
    # Without the check, an UPDATE would be as wrong.
    assert updated(read, change, table=table) == []


@pytest.mark.parametrize(
    "read",
    [
        "row = get_object_or_404(Product, pk=pk)",
        "row = get_object_or_404(models.Product, pk=pk)",
        "row = get_object_or_404(Product.objects, pk=pk)",
        "row = get_object_or_404(Product.objects.filter(name=n), pk=pk)",
        'row = models.Product.objects.filter(name=n).order_by("pk").first()',
    ],
)
def test_the_model_is_that_of_the_query(read: str) -> None:
    manager = "models.Product.objects" if "models." in read else "Product.objects"

    assert updated(read, CHECK, CHANGE) == lines(read, UPDATE.replace("Product.objects", manager))


@pytest.mark.parametrize(
    "statements",
    [
        # The query has a condition of its own, another database, or does not say what it adds.
        ["row = Product.objects.get(pk=pk, stock__gt=0)", CHANGE],
        ["row = Product.objects.get(**data)", CHANGE],
        ['row = Product.objects.using("other").get(pk=pk)', CHANGE],
        ["row = Product.objects.in_stock().get(pk=pk)", CHANGE],
        ["row = Product.available.get(pk=pk)", CHANGE],
        ["row = Course.objects.get(pk=pk)", CHANGE],
        ["row = self.product", CHANGE],
        # Something else sets the row, or sees it.
        [READ, 'row.name = "sold"', CHANGE],
        [READ, READ, CHANGE],
        [READ, "row.name = n\nother.stock -= n\nrow.save()"],
        [READ, "row.stock = n", CHANGE],
        [READ, "reserve(row)", CHANGE],
        [READ, "row.reserve()", CHANGE],
        [READ, "left = row.stock", CHANGE],
        [READ, "if row.stock < n:\n    raise NotEnough(row.stock)", CHANGE],
        [READ, "later = lambda: row.stock", CHANGE],
        [READ, f"try:\n{indent(CHANGE, '    ')}\nexcept IntegrityError:\n    return row.stock"],
        [READ, f"for n in data:\n{indent(CHANGE, '    ')}"],
        # The check is another one, does not leave, or stands elsewhere.
        [READ, "if row.stock < n or data:\n    return False", CHANGE],
        [READ, "if row.stock - n < 0:\n    return False", CHANGE],
        [READ, "if 0 < row.stock < n:\n    return False", CHANGE],
        [READ, "if row.stock in data:\n    return False", CHANGE],
        [READ, "if row.stock < count():\n    return False", CHANGE],
        [READ, "if row.stock < n:\n    n = row.id", CHANGE],
        [READ, f"{CHECK}\nelse:\n    n += 1", CHANGE],
        [READ, CHECK, "if data:\n    return True", CHANGE],
        # SQL orders strings by a collation.
        [READ, "if row.name < data:\n    return False", 'row.name = ""\nrow.save()'],
        # Only Python computes it, or knows what else is saved.
        [READ, "row.stock -= count()\nrow.save()"],
        [READ, "row.stock *= n\nrow.save()"],
        [READ, "row.stock -= n / 2\nrow.save()"],
        [READ, 'row.stock -= n\nrow.save(using="other")'],
        [READ, "row.stock -= n\nrow.save(True)"],
        [READ, 'row.stock -= n\nrow.save(update_fields=["name"])'],
        # Other statements share the lines, or stand in between.
        [READ, "row.stock -= n; row.save(); return True"],
        [READ, "if n: row.stock -= n; row.save()"],
        [READ, "row.stock -= n\nlog()\nrow.save()"],
    ],
)
def test_other_shapes_are_left_as_they_are(statements: list[str]) -> None:
    assert updated(*statements) == []


@pytest.mark.parametrize(
    ("read", "change", "table"),
    [
        ("row = User.objects.get(pk=pk)", "row.first_name = n", "auth_user"),  # a save() of its own
        ("row = StampedSeat.objects.get(pk=pk)", "row.guest = n", "shop_stampedseat"),  # auto_now
        ("row = PlainSeat.objects.get(pk=pk)", "row.guest = n", "shop_plainseat"),  # a version
        ("row = LogEntry.objects.get(pk=pk)", "row.object_id = n", "django_admin_log"),  # two values that are false
        (READ, "row.name = n", "elsewhere"),  # not a table of that model
    ],
)
def test_what_a_model_saves_besides_is_not_passed_over(read: str, change: str, table: str) -> None:
    target = change.partition(" ")[0]

    assert updated(read, f"if {target}:\n    return False", change, "row.save()", table=table) == []


def test_receivers_are_not_passed_over() -> None:
    def receive(**kwargs: object) -> None: ...

    assert updated(READ, CHANGE)
    for signal in (pre_save, post_save):
        signal.connect(receive, sender=Product)
        assert updated(READ, CHANGE) == []
        signal.disconnect(receive, sender=Product)


class Name(models.CharField):  # type: ignore[type-arg]  # Django's own class takes no arguments
    """May have other values in Python than in SQL."""


class Stamp(Name):
    def pre_save(self, model_instance: models.Model, add: bool) -> str:
        return "saved"


def test_fields_of_the_project_are_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    field, names = Product._meta.get_field("name"), ["if row.name:\n    return False", "row.name = n\nrow.save()"]
    assert updated(READ, *names)
    monkeypatch.setattr(field, "__class__", Name)
    assert updated(READ, *names) == []
    assert updated(READ, CHANGE)
    monkeypatch.setattr(field, "auto_now", True, raising=False)
    assert updated(READ, CHANGE) == []
    monkeypatch.undo()
    monkeypatch.setattr(field, "__class__", Stamp)
    assert updated(READ, CHANGE) == []


def test_in_a_loop_the_row_is_read_in_each_turn() -> None:
    parts = (f"{READ}\n{part}".replace("return False", "continue") for part in (f"{CHECK}\n{CHANGE}", UPDATE))
    turn, update = (lines("for n in data:", indent(part, "    ")) for part in parts)

    assert updated(*turn) == update
