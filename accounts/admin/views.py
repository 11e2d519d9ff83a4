"""Admin pages for deposits, withdrawals and transfers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.models import LogEntry
from django.contrib.admin.options import get_content_type_for_model
from django.contrib.admin.utils import quote, unquote
from django.contrib.auth import get_permission_codename
from django.core.exceptions import PermissionDenied
from django.db import router, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.admin.booking import FORMS, BookingForm
from accounts.errors import AccountError, InsufficientFunds
from accounts.models import AbstractAccount
from django_lockstep.errors import ConcurrencyError, raise_if_committed

_TITLES = {
    "deposit": gettext_lazy("Deposit"),
    "withdraw": gettext_lazy("Withdraw"),
    "transfer": gettext_lazy("Transfer"),
}

if TYPE_CHECKING:
    _Base = admin.ModelAdmin[Any]
else:
    _Base = object


class BookingMixin(_Base):
    """Adds a page for each operation; each requires its own permission, independent of ``change``."""

    def get_urls(self) -> list[URLPattern]:
        views = [
            path(
                f"<path:object_id>/{operation}/",
                self.admin_site.admin_view(partial(self.booking_view, operation=operation)),
                name=self._url_name(operation),
            )
            for operation in FORMS
        ]
        return [*views, *super().get_urls()]

    def may_book(self, request: HttpRequest, operation: str) -> bool:
        codename = get_permission_codename(operation, self.opts)
        return request.user.has_perm(f"{self.opts.app_label}.{codename}")

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        """Render Django's form, with links to the operations that the user may perform."""
        account = kwargs.get("obj")
        context["bookings"] = [
            {"title": title, "url": self._url(account, operation)}
            for operation, title in _TITLES.items()
            if account is not None and self.may_book(request, operation)
        ]
        return super().render_change_form(request, context, *args, **kwargs)

    def booking_view(self, request: HttpRequest, object_id: str, operation: str) -> HttpResponse:
        """Show the form, or perform the operation: once, however often the form is submitted.

        A version conflict or a lock timeout is 409: nothing was booked, and the form is shown again with the current
        state of the account.
        """
        if not self.may_book(request, operation):
            raise PermissionDenied
        account = self.get_object(request, unquote(object_id))
        if account is None:
            raise Http404
        form = FORMS[operation](request.POST or None, account=account)
        if not form.is_valid():
            return self._booking_page(request, form, operation)
        try:
            booked = self._book(request, form, operation)
        except (AccountError, ValueError) as error:
            # The error's message contains the balance.
            hidden = isinstance(error, InsufficientFunds) and not self._may_view(request, account)
            form.add_error(None, _("The account does not cover the amount.") if hidden else str(error))
            return self._booking_page(request, form, operation)
        except ConcurrencyError as error:
            raise_if_committed(error)
            return self._conflict_page(request, form, operation, error)
        done = _("Done: the balance is %s.") % booked.balance if self._may_view(request, account) else _("Done.")
        self.message_user(request, done, messages.SUCCESS)
        return HttpResponseRedirect(self._url(account, "change" if self._may_view(request, account) else operation))

    def _may_view(self, request: HttpRequest, account: AbstractAccount) -> bool:
        """Whether the user may see the account's balance, and not only book on it."""
        return self.has_view_or_change_permission(request, account)

    def _book(self, request: HttpRequest, form: BookingForm, operation: str) -> AbstractAccount:
        """Book and log in one transaction, so that neither exists without the other."""
        with transaction.atomic(using=router.db_for_write(self.model)):
            booked = form.book(operation)
            for entry in form.entries():
                done = _("%(operation)s (%(locking)s), entry %(pk)s: %(entry)s") % {
                    "operation": _TITLES[operation],
                    "locking": form.cleaned_data["locking"],
                    "pk": entry.pk,
                    "entry": entry,
                }
                # A form that is submitted again finds the same entries, which are logged only once.
                content_type = get_content_type_for_model(entry.account)
                logged = LogEntry.objects.filter(content_type=content_type, object_id=str(entry.account.pk))
                if not logged.filter(change_message=done).exists():
                    self.log_change(request, entry.account, done)
        return booked

    def _conflict_page(
        self, request: HttpRequest, form: BookingForm, operation: str, error: ConcurrencyError
    ) -> HttpResponse:
        account = self.get_object(request, str(form.account.pk))
        if account is None:
            raise Http404
        again = form.redisplay(account)
        again.add_error(None, _("Nothing was booked. Review the account's current state, then submit again."))
        return self._booking_page(request, again, operation, status=409, before=form.account, error=error)

    def _booking_page(
        self, request: HttpRequest, form: BookingForm, operation: str, *, status: int = 200, **context: object
    ) -> HttpResponse:
        request.current_app = self.admin_site.name
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media + form.media,
            "form": form,
            "account": form.account,
            "title": _TITLES[operation],
            "subtitle": str(form.account),
            "change_url": self._url(form.account, "change"),
            "sees": self._may_view(request, form.account),
            **context,
        }
        return TemplateResponse(request, "admin/accounts/booking.html", context, status=status)

    def _url(self, account: Any, page: str) -> str:
        return reverse(f"admin:{self._url_name(page)}", args=[quote(account.pk)], current_app=self.admin_site.name)

    def _url_name(self, page: str) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_{page}"
