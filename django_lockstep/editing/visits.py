"""One request to a change page of the admin: its check-out, and what the page tells of it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from django_lockstep.editing.conf import idle_after, time_to_live
from django_lockstep.editing.errors import EditingError, EditLocked, EditLockLost
from django_lockstep.editing.fences import fence
from django_lockstep.editing.operations import TAKE_OVER, announce, check_in, check_out, extend, status_of, take_over
from django_lockstep.editing.results import EditResult
from django_lockstep.editing.targets import target_of
from django_lockstep.editing.writers import TOKEN_FIELD
from django_lockstep.locking.durations import Duration

__all__ = ["Options", "Visit", "visit_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a model's admin wants it."""

    presence: bool
    how: dict[str, Any]
    ttl: Duration | None

    @classmethod
    def of(cls, model_admin: Any) -> Options:
        """Read the options of the mixin."""
        how = {name: getattr(model_admin, f"edit_lock_{name}") for name in ("related", "depth", "shared_references")}
        return cls(presence=model_admin.edit_lock_mode == "presence", how=how, ttl=model_admin.edit_lock_ttl)


def visit_of(request: HttpRequest) -> Visit | None:
    """Return the request's visit, if it has one."""
    return getattr(request, "edit_visit", None)


class Visit:
    """A person at a change page, whose script calls ``url``."""

    def __init__(self, request: HttpRequest, instance: Any, *, options: Options, url: str) -> None:
        self.request = request
        self.instance = instance
        self.token = request.POST.get(TOKEN_FIELD, "")
        self._options = options
        self._url = url
        self._result: EditResult | None = None
        self._refusal: Exception | None = None
        self._taken_over = False

    @property
    def writes_as(self) -> str:
        """The token to write under; presence counts for nothing there, and a copy is another record."""
        return "" if self._options.presence or "_saveasnew" in self.request.POST else self.token

    @property
    def read_only(self) -> bool:
        """Whether somebody else has it, and the page only shows it."""
        return bool(self.request.method != "POST" and self._result and not self._result.lock_result)

    def is_of(self, instance: Any) -> bool:
        """Whether it is the record of this visit."""
        return not instance._state.adding and target_of(instance) == target_of(self.instance)

    def open(self) -> None:
        """Check out, or go on with the check-out that was taken over a moment ago."""
        if self.request.method != "GET":
            self._result = status_of(self.instance, **self._options.how)  # nobody looks at it
            return
        self.token = self.request.session.pop(self._handed_over, "")
        self._result = self._check_out()

    def _check_out(self) -> EditResult:
        """Go on with the token's check-out where it lasts, and check out where it does not."""
        seen = status_of(self.instance, token=self.token, **self._options.how) if self.token else None
        if seen and seen.lock_result:
            return seen
        if self._options.presence:
            result = announce(self.instance, self.request.user, ttl=self._options.ttl)
        else:
            result = check_out(self.instance, self.request.user, ttl=self._options.ttl, **self._options.how)
        self.token = result.token or ""
        return result

    def take_over(self) -> bool:
        """Take over; whether what was typed is to be shown again, and not the record afresh."""
        typed = TOKEN_FIELD in self.request.POST  # the page that is only to be read has no such field
        try:
            result = take_over(self.instance, self.request.user, ttl=self._options.ttl, **self._options.how)
        except EditingError as error:
            messages.error(self.request, str(error))
            return typed
        self.token = result.token or ""
        self._taken_over = typed
        if not typed:
            self.request.session[self._handed_over] = self.token
        return typed

    @property
    def _handed_over(self) -> str:
        return f"lockstep.edit_lock:{target_of(self.instance).name}"

    def ask(self) -> None:
        """Raise ``ValidationError`` unless the record may be saved under this visit's check-out, now."""
        if self._taken_over:
            raise ValidationError(_("You have it now. Look at what is saved, and save again."), code="edit_taken_over")
        try:
            fence(self.instance)
            if not self._options.presence:
                self._result = extend(self.instance, self.request.user, token=self.token, ttl=self._options.ttl)
        except (EditLocked, EditLockLost, EditingError) as error:
            self.refuse(error)
        if self._refusal is not None:
            message = _("Not saved: %(reason)s. What you typed is still here.")
            facts = {"reason": str(self._refusal)}
            raise ValidationError(message, code="edit_locked", params=facts) from self._refusal

    def refuse(self, error: Exception) -> None:
        """Let every save of this visit fail with this error."""
        self._refusal = error

    def close(self) -> None:
        """Give back after a save, in its transaction."""
        with suppress(EditLockLost, EditingError):
            check_in(self.instance, self.request.user, token=self.token)

    def refused(self, response: TemplateResponse) -> TemplateResponse:
        """Give a refused save its status, and check out again what has become free."""
        if self._refusal is not None:
            self._result = None if self._options.presence else self._check_out()
            free = self._result is not None and self._result.lock_result
            response.status_code = 409 if free and not isinstance(self._refusal, EditLocked) else 423
        return response

    def shown(self, response: Any) -> Any:
        """Put what is to be said on the change page, whatever template that has."""
        context = response.context_data or {} if isinstance(response, TemplateResponse) else {}
        if "adminform" in context:
            page = response.resolve_template(response.template_name)
            context["edit_lock"] = {**self._context(context["adminform"]), "page": page}
            response.template_name = "admin/lockstep_editing/change_page.html"
        return response

    def _context(self, adminform: Any) -> dict[str, Any]:
        result = self._result or status_of(self.instance, token=self.token, **self._options.how)
        return {
            "result": result,
            "presence": self._options.presence,
            "name": target_of(self.instance).name,
            "url": self._url,
            "token": self.token,
            "field": TOKEN_FIELD,
            "refused": self._refusal is not None or self._taken_over,
            "read_only": self.read_only,
            "own": bool(result.must_end) and all(self._is_mine(hold.editor) for hold in result.must_end),
            "may_take_over": self.request.user.has_perm(TAKE_OVER),
            "differs": list(_differences(adminform)) if self._refusal or self._taken_over else [],
            "ttl": _seconds(time_to_live(self._options.ttl)),
            "idle": _seconds(idle_after()),
        }

    def _is_mine(self, editor: str) -> bool:
        return editor == self.request.user.get_username()


def _seconds(duration: timedelta) -> str:
    """Return whole seconds for a script: as text, to which no template adds separators."""
    return str(int(duration.total_seconds()))


def _differences(adminform: Any) -> Any:
    """Yield the fields in which what was typed differs from what is saved now, with the latter."""
    form: Any = getattr(adminform, "form", None)
    for name in form.changed_data if form else ():
        yield form[name].label, form[name].initial
