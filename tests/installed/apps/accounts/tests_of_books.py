"""What the project relies on of edit locks."""

from typing import Any

from django.contrib.auth import get_user_model
from django.db import DatabaseError, connection, transaction
from django.test import TestCase

from django_lockstep.editing import check_in, check_out
from django_lockstep.editing.models import EditLock

from .models import Book, Publisher


class EditingTests(TestCase):
    def setUp(self) -> None:
        users: Any = get_user_model()._default_manager
        self.ada, self.bob = users.create_superuser("ada"), users.create_user("bob")
        self.book = Book._default_manager.create(publisher=Publisher._default_manager.create())

    def test_a_table_is_out_with_what_it_refers_to(self) -> None:
        result = check_out(Book, self.ada)
        self.assertEqual([table.table_name for table in result.fk_current_status], ["accounts.publisher"])
        self.assertFalse(check_out(Publisher, self.bob).lock_result)
        check_in(Book, self.ada, token=result.token)
        self.assertFalse(EditLock.objects.exists())

    def test_sql_cannot_write(self) -> None:
        check_out(self.book, self.ada)
        with self.assertRaises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("UPDATE accounts_book SET title = 'New'")

    def test_the_admin_checks_out(self) -> None:
        self.client.force_login(self.ada)
        page = self.client.get(f"/admin/accounts/book/{self.book.pk}/change/")
        self.assertContains(page, "Checked out by you until")
