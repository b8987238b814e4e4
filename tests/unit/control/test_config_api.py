"""What the admin port says of the configuration where there is no file to load again."""

import pytest

from tests.unit.control.admins import CONFIG, running_admin


async def test_a_configuration_without_a_file_is_shown_but_can_not_be_loaded_again() -> None:
    async with running_admin() as admin:
        shown = (await admin.client.get("/api/v1/config")).json()
        assert (shown["source"], shown["last_reload"], shown["last_error"]) == (None, None, None)

        answer = await admin.client.post("/api/v1/reload")
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "no_configuration_file")


async def test_all_of_it_is_shown_with_its_defaults_and_without_secrets() -> None:
    text = CONFIG.replace("name: q1}]}", "name: q1}], feed_token: s3cret}")
    assert "s3cret" in text
    async with running_admin(text) as admin:
        answer = await admin.client.get("/api/v1/config?full=true")

        config = answer.json()["config"]
        assert config["default_pool"] == "interactive"
        assert config["timeouts"]["connect_s"] == 2
        assert config["pools"]["quarantine"]["replicas"][0]["name"] == "q1"
        assert config["pools"]["quarantine"]["feed_token"] == "•••"
        assert "s3cret" not in answer.text


@pytest.mark.parametrize("query", ["full=yes", "full=1", "full="])
async def test_a_flag_is_true_or_false(query: str) -> None:
    async with running_admin() as admin:
        answer = await admin.client.get(f"/api/v1/config?{query}")

        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_query")


async def test_pages_from_elsewhere_can_not_drain_a_replica() -> None:
    async with running_admin() as admin:
        foreign = {"origin": "https://evil.example"}
        answer = await admin.client.post("/api/v1/replicas/i1/drain", headers=foreign)

        assert answer.status_code == 403
        assert not next(iter(admin.context.router.pools["interactive"].replicas)).draining
        # What ends TLS in front of us leaves the host as it is; that we are asked in the clear is no page's doing.
        own = {"origin": str(admin.client.base_url).replace("http:", "https:").rstrip("/")}
        assert (await admin.client.post("/api/v1/replicas/i1/drain", headers=own)).json()["draining"] is True
