"""What an LLM client does, engine-agnostic: the official `openai` client and raw HTTP, direct and through the gateway.

`cases/` says what clients ask and what must hold of the answers; `exchange.py` records the bytes that came back;
`sameness.py` compares two recordings; `processes.py` starts and stops the servers. The suite runs on the simulator
(`tests/integration/test_openai_client.py`) and on real SGLang (`tests/engines/test_sglang.py`).
"""
