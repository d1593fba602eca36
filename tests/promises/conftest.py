import pytest
from program import Tool


@pytest.fixture
def tool(tmp_path) -> Tool:
    return Tool(tmp_path)
