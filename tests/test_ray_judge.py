"""Judging on a real Ray of two nodes on this machine; skipped where Ray is not installed."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import reward
from data import Case, Task
from judge import CheckerFault, Judge, JudgeFault, Limits, SandboxError
from ray_judge import RayJudge

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.filterwarnings("ignore")
TASK = Task("t", "t", "t", "", 0, (Case("1 2", "3"), Case("4 5", "9")), (Case("3 4", "7"),))
ADD = "a, b = map(int, input().split())\nprint(a + b)\n"
PROGRAMS = (ADD, "print(3)", "print(1 // 0)", "import os\nos.fork()", "x = (", "", "while 1: pass")


@pytest.fixture
def cluster():
    pytest.importorskip("ray", reason="Ray is not installed: pip install '.[ray]'")
    import ray
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    made.second = made.add_node(num_cpus=1)
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made
    ray.shutdown()
    made.shutdown()


def test_a_ray_of_two_nodes(cluster):
    """One start of Ray for all of it, since that takes seconds."""
    limits = Limits(cpu_seconds=0.5, wall_seconds=5)

    async def verdicts(judge) -> list[str]:
        found = await asyncio.gather(*(judge.grade(program, TASK) for program in PROGRAMS))
        return [(each.verdict, each.first_failure, each.hidden_passed) for each in found]

    async def scenario() -> None:
        async with Judge(1, limits) as here:
            expected = await verdicts(here)
        async with RayJudge(1, limits) as judge:
            report = await asyncio.to_thread(judge.self_check)
            report.check()
            assert "on 2 nodes" in report.line
            assert await verdicts(judge) == expected
            with pytest.raises(CheckerFault, match="no answer"):
                await judge.grade(ADD, Task("c", "c", "c", "", 0, *[TASK.visible] * 2, checker="1"))
            await rewards()
            await a_node_dies(judge)
            await the_last_actor_dies(judge)

    async def rewards() -> None:
        cases = '{"inputs": ["1 2"], "outputs": ["3"]}'
        assert "on 2 nodes" in reward.set_up(workers=1, judge="ray")
        found = await reward.score([f"```python\n{ADD}\n```", "no"], [cases] * 2)
        assert [each.value for each in found] == [1.0, 0.0]

    async def a_node_dies(judge) -> None:
        asleep = "import time\ntime.sleep(0.02)\n" + ADD
        jobs = [asyncio.ensure_future(judge.grade(f"{asleep}# {n}", TASK)) for n in range(120)]
        await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.to_thread(cluster.remove_node, cluster.second, allow_graceful=False)
        found = await asyncio.gather(*jobs)
        assert [each.verdict for each in found] == ["accepted"] * 120
        assert len(judge._nodes) == 1

    async def the_last_actor_dies(judge) -> None:
        """Its node is there yet, and gets another; with no node there is a judge fault."""
        import ray

        (node,) = judge._nodes.values()
        ray.kill(node.actor)
        assert (await judge.grade(ADD + "# again", TASK)).accepted
        (node,) = judge._nodes.values()
        judge._find_nodes = lambda: None
        ray.kill(node.actor)
        with pytest.raises(JudgeFault, match="no node of the Ray is left"):
            await judge.grade(ADD + "# once more", TASK)

    asyncio.run(scenario())


def test_nodes_of_another_python_are_left_out_by_name(cluster, monkeypatch):
    monkeypatch.setattr("ray_judge._python", lambda: "3.0")
    with pytest.raises(
        SandboxError, match=r"no node of the Ray can judge; left out: .*and 3\.0 here"
    ):
        RayJudge(1).self_check()


def test_an_address_without_a_ray_is_one_line_at_once():
    pytest.importorskip("ray", reason="Ray is not installed: pip install '.[ray]'")
    with pytest.raises(SandboxError, match=r"no Ray at 127\.0\.0\.1:1: .*--ray-address right\?"):
        RayJudge(1, address="127.0.0.1:1").self_check()


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)  # an import of it fails
    with pytest.raises(SandboxError, match=r"pip install '\.\[ray\]'"):
        RayJudge().self_check()


def test_the_flags_are_refused_together():
    command = [sys.executable, str(ROOT / "run.py"), "--dry-run", "--ray-address", "x:1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--ray-address has no effect without --judge ray" in done.stderr
