"""Coupons, the checkout, and wish lists."""

from .base import ShopTestCase


class CouponTests(ShopTestCase):
    def setUp(self) -> None:
        self.coupon = self.objects("Coupon").create(code="SPRING", limit=1)

    def redeem(self, code: str = "SPRING") -> int:
        return self.client.post(self.url("redeem"), {"code": code}).status_code

    def test_a_coupon_is_redeemed(self) -> None:
        self.assertEqual(self.redeem(), 200)
        self.coupon.refresh_from_db()
        self.assertEqual(self.coupon.used, 1)

    def test_a_coupon_is_used_up(self) -> None:
        self.assertEqual(self.redeem(), 200)
        self.assertEqual(self.redeem(), 409)
        self.coupon.refresh_from_db()
        self.assertEqual(self.coupon.used, 1)

    def test_an_unknown_code(self) -> None:
        self.assertEqual(self.redeem("WINTER"), 404)


class CorrectCouponTests(CouponTests):
    shop = "correct"


class CheckoutTests(ShopTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.product = self.objects("Product").create(name="Kettle", stock=5)

    def order(self, quantity: int) -> int:
        data = {"product": self.product.pk, "quantity": quantity}
        return self.client.post(self.url("checkout"), data, content_type="application/json").status_code

    def test_an_order_reduces_the_stock(self) -> None:
        self.assertEqual(self.order(2), 201)
        self.product.refresh_from_db()
        self.assertEqual(self.product.stock, 3)
        self.assertEqual(self.product.orders.get().customer_id, self.customer.pk)

    def test_no_more_is_sold_than_there_is(self) -> None:
        self.assertEqual(self.order(3), 201)
        self.assertEqual(self.order(3), 409)
        self.product.refresh_from_db()
        self.assertEqual(self.product.stock, 2)

    def test_anonymous_visitors_are_sent_to_the_login(self) -> None:
        self.client.logout()
        self.assertEqual(self.order(1), 302)


class CorrectCheckoutTests(CheckoutTests):
    shop = "correct"


class WishListTests(ShopTestCase):
    def wish(self, product: str) -> int:
        return self.client.post(self.url("wish"), {"product": product}).status_code

    def test_the_first_wish_makes_the_list(self) -> None:
        self.assertEqual(self.wish("Kettle"), 200)
        self.assertEqual(self.objects("WishList").get().owner_id, self.customer.pk)

    def test_more_wishes_go_into_the_same_list(self) -> None:
        self.wish("Kettle")
        self.wish("Teapot")
        wishes = self.objects("WishList").get().wishes
        self.assertEqual(list(wishes.order_by("pk").values_list("product", flat=True)), ["Kettle", "Teapot"])


class CorrectWishListTests(WishListTests):
    shop = "correct"
