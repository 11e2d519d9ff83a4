"""Each page of the demo in Japanese and in Arabic, with the demo's data and with races that were run: no English."""

import re
from collections.abc import Callable, Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import django
import pytest
from django.contrib.auth.models import User
from django.db.models import F
from django.test import Client

from accounts.models import Account
from bank.demo_data import create_demo_data
from bank.models import Article
from django_lockstep.editing.models import CheckOut
from django_lockstep.lab.pages.exploring import start_races
from django_lockstep.lab.pages.store import Store, open_store
from tests.bank.test_accessibility import PAGES
from tests.django_lockstep.admin.browsing import fill
from tests.support.factories import AccountFactory
from tests.support.sessions import PATIENCE, Session, until

pytestmark = pytest.mark.django_db(transaction=True)

LANGUAGES = ("ja", "ar")
RACES = (
    "front:without",
    "front:pessimistic",
    "front:optimistic",
    "overdraft:naive",
    "transfers:unordered",
    "get-or-create:unique",
    "write-skew:unlocked",
    "anomaly:P4:read-committed",
    "anomaly:PMP:read-committed",
    "anomaly:G2-item:serializable",
)
"""One that holds and one that is broken of each kind, with and without an invariant, a deadlock, a refused INSERT."""
STATES = ("idle in transaction",)
"""The server's own words."""
UNTRANSLATED = ("Select an option",) if django.VERSION >= (6, 1) else ()
"""What Django has in few languages."""
_CODE = {"code", "pre", "script", "style", "textarea"}
_ATTRIBUTES = ("alt", "aria-label", "placeholder", "title")
_WORD = r"[A-Za-z]*[a-z]{2,}'?[a-z]*"
_SENTENCE = re.compile(rf"(?<![\w.(/=]){_WORD}(?:[,;:.]? {_WORD}(?![\w(=_])){{2,}}")


class Texts(HTMLParser):
    """Collects what a page says, but for code and what is marked as English."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._skipped: list[str] = []
        """The elements around it since the first that is left out."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag in _VOID:
            pass
        elif self._skipped or tag in _CODE or values.get("lang") == "en" or values.get("data-step"):
            self._skipped.append(tag)
        if not self._skipped:
            self.texts += [values[name] for name in _ATTRIBUTES if name in values]

    def handle_endtag(self, tag: str) -> None:
        if self._skipped and tag not in _VOID:
            self._skipped.pop()

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self.texts.append(" ".join(data.split()))


_VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}


def english_in(page: str, data: set[str]) -> Iterator[str]:
    """Yield three words of English or more in a row, which the project's data does not have."""
    parser = Texts()
    parser.feed(page)
    for text in parser.texts:
        for words in _SENTENCE.findall(text):
            if not any(words in value for value in data):
                yield words


@pytest.fixture
def ada(settings: Any, tmp_path: Path) -> Client:
    settings.LOCKSTEP_LAB_LIVE_FOLDER = tmp_path
    settings.LOCKSTEP_LAB_RUNS_IN_PAGES = True
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    return client


def english_on(client: Client, path: str, *, said: Iterable[str] = (), sent: Any = None) -> dict[str, list[str]]:
    """Return what is English there by language; ``said`` is what neither the project nor the lab has said.

    ``sent`` is a form to send; one that is refused.
    """
    data = {text for article in Article.objects.all() for text in (article.title, article.text)}
    data |= {*said, *CheckOut.objects.values_list("note", flat=True)}
    pages = {}
    for language in LANGUAGES:
        headers = {"accept-language": language}
        answer = client.get(path, headers=headers) if sent is None else client.post(path, sent, headers=headers)
        assert answer.status_code in ((200,) if sent is None else (200, 409)), path
        pages[f"{path} in {language}"] = list(english_in(answer.content.decode(), data))
    return {name: texts for name, texts in pages.items() if texts}


def test_pages_with_the_demos_data(ada: Client) -> None:
    create_demo_data()
    account, article = Account.objects.earliest("pk"), Article.objects.earliest("pk")
    own = (
        *(f"/admin/accounts/account/{account.pk}/{page}/" for page in ("change", "history")),
        f"/admin/bank/article/{article.pk}/change/",
    )
    assert [english for path in (*PAGES, *own) if (english := english_on(ada, path, said=UNTRANSLATED))] == []


def test_what_is_refused(ada: Client) -> None:
    account = AccountFactory.create(balance=100)
    terms, deposit, withdraw = (
        f"/admin/accounts/account/{account.pk}/{page}/" for page in ("change", "deposit", "withdraw")
    )
    changed = fill(ada.get(terms), overdraft_limit="5")
    stale = fill(ada.get(deposit), amount="5", locking="optimistic")
    forms = {
        withdraw: fill(ada.get(withdraw), amount="101", locking="pessimistic"),
        deposit: fill(ada.get(deposit), amount="-1", locking="pessimistic"),
        terms: fill(ada.get(terms), overdraft_limit="much"),
    }
    assert [english for path, form in forms.items() if (english := english_on(ada, path, sent=form))] == []
    Account.deposit(account.pk, 7)
    Account.objects.filter(pk=account.pk).update(overdraft_limit=1, version=F("version") + 1)
    assert [
        english
        for path, form in {terms: changed, deposit: stale}.items()
        if (english := english_on(ada, path, sent=form))
    ] == []


def test_sessions_that_wait(ada: Client, open_session: Callable[[], Session]) -> None:
    account, holder, waiter = AccountFactory.create(), open_session(), open_session()
    with holder.holding(Account.deposit, account.pk, 7):
        waiting = waiter.start(Account.deposit, account.pk, 7)
        waiter.wait_until_blocked()
        assert english_on(ada, "/admin/lockstep_monitor/lock/", said=STATES) == {}
    waiting.result(PATIENCE)


def test_races_that_were_run(ada: Client) -> None:
    store = open_store()
    start_races(store, RACES)
    until(lambda: has_ended(store), "the races to end", patience=8 * PATIENCE)
    assert store.results().keys() == set(RACES)
    paths = ("/", "/lab/", *(f"/lab/{name}/" for name in RACES))
    said = {message for name in RACES for message in raised_in(store, name)}
    assert [english for path in paths if (english := english_on(ada, path, said=said))] == []


def raised_in(store: Store, name: str) -> Iterator[str]:
    """Yield the messages of the errors that the server and the code under test have raised."""
    shown = store.shown(name)
    assert shown is not None
    for run in (*shown.report.runs, *shown.report.serial):
        yield from (str(raised) for raised in run.raised.values())


def has_ended(store: Store) -> bool:
    store.watch()
    run = store.run()
    return run is not None and not run.active
