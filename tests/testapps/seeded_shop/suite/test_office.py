"""Bookings, articles, and expenses."""

from django.contrib.auth.models import User

from .base import ShopTestCase


class BookingTests(ShopTestCase):
    def setUp(self) -> None:
        self.show = self.objects("Show").create(title="Hamlet")

    def book(self, seat: str, guest: str) -> int:
        data = {"show": self.show.pk, "seat": seat, "guest": guest}
        return self.client.post(self.url("book"), data).status_code

    def test_a_seat_is_booked(self) -> None:
        self.assertEqual(self.book("A1", "Ada"), 302)
        self.assertEqual(self.show.bookings.get().guest, "Ada")

    def test_a_seat_that_is_taken(self) -> None:
        self.book("A1", "Ada")
        response = self.client.post(self.url("book"), {"show": self.show.pk, "seat": "A1", "guest": "Grace"})
        self.assertContains(response, "This seat is taken.", status_code=400)
        self.assertEqual(self.book("A2", "Grace"), 302)

    def test_every_field_is_needed(self) -> None:
        self.assertEqual(self.book("A1", ""), 400)
        self.assertFalse(self.show.bookings.exists())


class CorrectBookingTests(BookingTests):
    shop = "correct"


class ArticleTests(ShopTestCase):
    def test_views_are_counted(self) -> None:
        article = self.objects("Article").create(slug="tea", title="On tea", views=41)
        response = self.client.get(self.url("article", "tea"))
        self.assertContains(response, "On tea")
        article.refresh_from_db()
        self.assertEqual(article.views, 42)

    def test_an_unknown_article(self) -> None:
        self.assertEqual(self.client.get(self.url("article", "coffee")).status_code, 404)


class CorrectArticleTests(ArticleTests):
    shop = "correct"


class ExpenseTests(ShopTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.expense = self.objects("Expense").create(purpose="Train to Bath")

    def decide(self, decision: str) -> int:
        return self.client.post(self.url("decide", self.expense.pk), {"decision": decision}).status_code

    def test_an_expense_is_approved(self) -> None:
        self.assertEqual(self.decide("approve"), 302)
        self.expense.refresh_from_db()
        self.assertEqual(self.expense.status, "approved")
        self.assertEqual(self.expense.decisions.get().manager_id, self.customer.pk)

    def test_it_is_decided_once(self) -> None:
        self.assertEqual(self.decide("reject"), 302)
        self.client.force_login(User.objects.create_user("manager"))
        self.assertEqual(self.decide("approve"), 409)
        self.expense.refresh_from_db()
        self.assertEqual(self.expense.status, "rejected")


class CorrectExpenseTests(ExpenseTests):
    shop = "correct"
