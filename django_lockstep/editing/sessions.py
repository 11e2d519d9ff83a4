"""Edit sessions: one request to a change page of the admin, its check-out, and the page's banner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from django_lockstep.editing.conf import duration, time_to_live
from django_lockstep.editing.errors import EditingError, EditLocked, EditLockLost
from django_lockstep.editing.operations import TAKE_OVER, announce, check_in, check_out, extend, status_of, take_over
from django_lockstep.editing.results import EditResult
from django_lockstep.editing.targets import target_of
from django_lockstep.editing.write_checks import require_editable
from django_lockstep.editing.writers import TOKEN_FIELD
from django_lockstep.locking.durations import Duration


def edit_session_of(request: HttpRequest) -> EditSession | None:
    """Return the request's edit session, None without one."""
    return getattr(request, "edit_session", None)


class EditSession:
    """One user on one change page of an admin with `EditLockAdminMixin`, whose script calls ``url``."""

    def __init__(self, request: HttpRequest, instance: Model, *, admin: Any, url: str) -> None:
        self.request = request
        self.instance = instance
        self.token = request.POST.get(TOKEN_FIELD, "")
        self._presence = admin.edit_lock_mode == "presence"
        self._ttl: Duration | None = admin.edit_lock_ttl
        self._lock_options = {
            name: getattr(admin, f"edit_lock_{name}") for name in ("related", "depth", "shared_references")
        }
        self._url = url
        self._result: EditResult | None = None
        self.refusal: Exception | None = None
        """An error with which the form's validation fails."""
        self._taken_over = False

    @property
    def writes_as(self) -> str:
        """The token for writes; empty for a presence, which locks nothing, and for a copy, which is another record."""
        return "" if self._presence or "_saveasnew" in self.request.POST else self.token

    @property
    def read_only(self) -> bool:
        """Whether another user holds the record, so that the page is read-only."""
        return bool(self.request.method != "POST" and self._result and not self._result.lock_result)

    def is_of(self, instance: Any) -> bool:
        """Whether the instance is this session's record."""
        return not instance._state.adding and target_of(instance) == target_of(self.instance)

    def open(self) -> None:
        """Check out, or continue with the check-out that a takeover handed over."""
        if self.request.method != "GET":
            self._result = status_of(self.instance, **self._lock_options)  # HEAD and OPTIONS must not check out
            return
        # Popped: a reload of the page must not continue with a token that another tab may use.
        self.token = self.request.session.pop(self._session_key, "")
        self._result = self._check_out()

    def _check_out(self) -> EditResult:
        """Continue with the token's check-out if it is still valid, otherwise check out."""
        seen = status_of(self.instance, token=self.token, **self._lock_options) if self.token else None
        if seen and seen.lock_result:
            return seen
        if self._presence:
            result = announce(self.instance, self.request.user, ttl=self._ttl)
        else:
            result = check_out(self.instance, self.request.user, ttl=self._ttl, **self._lock_options)
        self.token = result.token or ""
        return result

    def take_over(self) -> bool:
        """Take over; return whether to show the typed values again instead of the saved record."""
        typed = TOKEN_FIELD in self.request.POST  # the read-only page has no such field
        try:
            result = take_over(self.instance, self.request.user, ttl=self._ttl, **self._lock_options)
        except EditingError as error:
            messages.error(self.request, str(error))
            return typed
        self.token = result.token or ""
        self._taken_over = typed
        if not typed:
            self.request.session[self._session_key] = self.token
        return typed

    @property
    def _session_key(self) -> str:
        return f"lockstep.edit_lock:{target_of(self.instance).name}"

    def require_check_out(self) -> None:
        """Raise ``ValidationError`` unless the record may be saved under this session's check-out now."""
        if self._taken_over:
            raise ValidationError(
                _("You have taken over this record. Compare your input with the saved values, then save again."),
                code="edit_taken_over",
            )
        try:
            require_editable(self.instance)
            if not self._presence:
                self._result = extend(self.instance, self.request.user, token=self.token, ttl=self._ttl)
        except (EditLocked, EditLockLost, EditingError) as error:
            self.refusal = error
        if self.refusal is not None:
            message = _("Not saved: %(reason)s. Your input is kept.")
            params = {"reason": str(self.refusal)}
            raise ValidationError(message, code="edit_locked", params=params) from self.refusal

    def close(self) -> None:
        """Check in after a save, in its transaction."""
        # The record is saved; that its check-out has already ended is no longer relevant.
        with suppress(EditLockLost, EditingError):
            check_in(self.instance, self.request.user, token=self.token)

    def finish_refusal(self, response: HttpResponse) -> HttpResponse:
        """Set the status of a refused save, and check out again if the record has become free."""
        if self.refusal is not None:
            # Outside the transaction of the save, so that the new check-out lasts.
            self._result = None if self._presence else self._check_out()
            free = self._result is not None and self._result.lock_result
            # 423 while another user has the record; 409 if only our own check-out had ended.
            response.status_code = 409 if free and not isinstance(self.refusal, EditLocked) else 423
        return response

    def add_banner(self, response: HttpResponse) -> HttpResponse:
        """Add the banner to the change page, whatever template it uses."""
        if isinstance(response, TemplateResponse) and "adminform" in (context := response.context_data or {}):
            page = response.resolve_template(response.template_name)
            context["edit_lock"] = {**self._context(context["adminform"]), "page": page}
            response.template_name = "admin/lockstep_editing/change_page.html"
        return response

    def _context(self, adminform: object) -> dict[str, Any]:
        result = self._result or status_of(self.instance, token=self.token, **self._lock_options)
        return {
            "result": result,
            "presence": self._presence,
            "name": target_of(self.instance).name,
            "url": self._url,
            "token": self.token,
            "field": TOKEN_FIELD,
            "refused": self.refusal is not None or self._taken_over,
            "read_only": self.read_only,
            "own": {hold.editor for hold in result.must_end} == {self.request.user.get_username()},
            "may_take_over": self.request.user.has_perm(TAKE_OVER),
            "differs": list(_differences(adminform)) if self.refusal or self._taken_over else [],
            "ttl": _seconds(time_to_live(self._ttl)),
            "idle": _seconds(duration("LOCKSTEP_EDIT_IDLE")),
        }


def _seconds(time: timedelta) -> str:
    """Return whole seconds for a script: as text, so that templates do not add thousands separators."""
    return str(int(time.total_seconds()))


def _differences(adminform: object) -> Iterator[tuple[Any, Any]]:
    """Yield label and saved value of the fields whose typed value differs."""
    form: Any = getattr(adminform, "form", None)
    for name in form.changed_data if form else ():
        yield form[name].label, form[name].initial
