"""Answers of the API made of those of all workers."""

from gateway.workers.documents import merge_pools, merge_running


def test_what_runs_and_waits_is_added_up_and_the_rest_is_the_first_ones() -> None:
    def document(in_flight: int, available: bool, oldest_s: float) -> dict[str, object]:
        return {
            "pools": [
                {
                    "name": "chat",
                    "on_open": "quarantine",
                    "step_budget_us": 500.0,
                    "max_in_flight": None,
                    "in_flight": in_flight,
                    "queue": {"waiting": 1, "oldest_s": oldest_s, "reserved": None},
                    "replicas": [{"name": "r1", "available": available, "in_flight": in_flight, "last_error": None}],
                }
            ]
        }

    assert merge_pools([document(2, False, 1.5), document(3, True, 0.5)]) == {
        "pools": [
            {
                "name": "chat",
                "on_open": "quarantine",
                "step_budget_us": 1000.0,
                "max_in_flight": None,
                "in_flight": 5,
                "queue": {"waiting": 2, "oldest_s": 1.5, "reserved": None},
                "replicas": [{"name": "r1", "available": True, "in_flight": 5, "last_error": None}],
            }
        ]
    }


def test_what_runs_of_a_signature_runs_in_any_worker() -> None:
    documents = [{"record": 1, "running": [{"request_id": "a"}]}, {"record": 1, "running": [{"request_id": "b"}]}]
    assert merge_running(documents) == {"record": 1, "running": [{"request_id": "a"}, {"request_id": "b"}]}
