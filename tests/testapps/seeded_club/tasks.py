"""Stands for a queue of tasks: ``delay()`` hands the work to a worker at once, whatever transaction is open."""


class Printing:
    def delay(self, pk: int) -> None:
        """Do nothing: a worker would print the report."""


print_report = Printing()
