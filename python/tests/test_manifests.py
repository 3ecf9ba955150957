"""The Kubernetes manifests agree with each other, and the commands that they run exist."""

import pathlib
import re
import shlex
import subprocess

import pytest

import relive

yaml = pytest.importorskip("yaml", reason="python3-yaml is missing: run tools/setup")

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples" / "kubernetes"
KINDS = {"Job": "batch/v1", "Service": "v1", "StatefulSet": "apps/v1",
         "NetworkPolicy": "networking.k8s.io/v1", "PodDisruptionBudget": "policy/v1"}
FILES = sorted(path.name for path in FOLDER.glob("*.yaml"))
UNITS = {"Mi": 1 << 20, "Gi": 1 << 30, "M": 1 << 20, "G": 1 << 30}  # of relive, too: powers of 1024


def objects(name):
    return [o for o in yaml.safe_load_all((FOLDER / name).read_text()) if o]


def of_kind(name, *kinds):
    return [o for o in objects(name) if o["kind"] in kinds]


def pods(name):
    """(labels, pod template) of each object that runs pods."""
    return [(o["spec"]["template"]["metadata"]["labels"], o["spec"]["template"]["spec"])
            for o in of_kind(name, "Job", "StatefulSet")]


def containers(pod):
    return pod.get("initContainers", []) + pod["containers"]


def all_containers():
    return [pytest.param(name, pod, c, id="%s-%s" % (name, c["name"]))
            for name in FILES for _, pod in pods(name) for c in containers(pod)]


def matches(selector, labels):
    wanted = selector.get("matchLabels", selector)
    return bool(wanted) and wanted.items() <= labels.items()


def size(text):
    number, unit = re.fullmatch(r"(\d+)([A-Z]i?)", text).groups()
    return int(number) * UNITS[unit]


PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
HEALTH = {"--health", "--node"}  # of relive status


def words_of(command):
    """The command lines of a command, one for each part of a shell's."""
    parts = re.split(r"&&|;", command[2]) if command[0] == "sh" else [shlex.join(command)]
    return [shlex.split(part.replace("exec ", "")) for part in parts]


def probe_of(container, name):
    words, = words_of(container[name]["exec"]["command"])
    return words


def commands(container):
    """Command lines that the container and its probes run."""
    return words_of(container["command"]) + [probe_of(container, name) for name in PROBES
                                             if name in container]


def test_there_are_manifests():
    assert FILES == ["many-hosts.yaml", "one-host.yaml"]


@pytest.mark.parametrize("name", FILES)
def test_objects_are_of_known_kinds_and_named_once(name):
    seen = set()
    for o in objects(name):
        assert KINDS[o["kind"]] == o["apiVersion"]
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", o["metadata"]["name"])
        assert (o["kind"], o["metadata"]["name"]) not in seen
        seen.add((o["kind"], o["metadata"]["name"]))


@pytest.mark.parametrize("name", FILES)
def test_selectors_find_a_pod(name):
    labels = [found for found, _ in pods(name)]
    for o in of_kind(name, "Service", "StatefulSet", "PodDisruptionBudget", "NetworkPolicy"):
        selector = o["spec"].get("selector") or o["spec"]["podSelector"]
        assert any(matches(selector, found) for found in labels), o["metadata"]["name"]


@pytest.mark.parametrize("name", FILES)
def test_each_set_has_a_headless_service(name):
    services = {o["metadata"]["name"]: o["spec"] for o in of_kind(name, "Service")}
    for o in of_kind(name, "StatefulSet"):
        service = services[o["spec"]["serviceName"]]
        assert service["clusterIP"] == "None"
        assert matches(service["selector"], o["spec"]["template"]["metadata"]["labels"])
        assert o["spec"]["selector"]["matchLabels"].items() <= \
            o["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("name", FILES)
def test_ports_of_services_and_policies_are_those_of_pods(name):
    for o in of_kind(name, "Service", "NetworkPolicy"):
        selector = o["spec"].get("selector") or o["spec"]["podSelector"]
        open_ports = {p["name"]: p["containerPort"] for labels, pod in pods(name)
                      if matches(selector, labels) for c in containers(pod)
                      for p in c.get("ports", [])}
        for port in o["spec"].get("ports", []):
            assert open_ports[port["targetPort"]] == port["port"]
        for rule in o["spec"].get("ingress", []):
            assert rule["from"]
            for port in rule["ports"]:
                known = open_ports.values() if "endPort" in port else open_ports
                assert port["port"] in known


def test_memory_nodes_listen_where_others_may_come_in():
    ranges = ["--ports=%d-%d" % (port["port"], port["endPort"])
              for o in of_kind("many-hosts.yaml", "NetworkPolicy")
              for rule in o["spec"].get("ingress", []) for port in rule["ports"] if "endPort" in port]
    nodes = [c["command"] for _, pod in pods("many-hosts.yaml") for c in containers(pod)
             if c["command"][0] == "relive-memnode"]
    assert len(nodes) == 1 and ranges == [arg for arg in nodes[0] if arg.startswith("--ports=")]


def test_the_server_listens_where_its_service_points():
    ports = {o["metadata"]["name"]: o["spec"]["ports"][0]["port"]
             for o in of_kind("many-hosts.yaml", "Service") if "ports" in o["spec"]}
    listen = [arg for _, pod in pods("many-hosts.yaml") for c in containers(pod) for arg in c["command"]
              if arg.startswith("--listen=")]
    assert listen == ["--listen=0.0.0.0:%d" % ports["relive-metad"]]
    text = (FOLDER / "many-hosts.yaml").read_text()
    uris = re.findall(r"relive://([a-z-]+):(\d+)", text)
    assert uris and all(ports[host] == int(port) for host, port in uris)


@pytest.mark.parametrize("name, pod, container", all_containers())
def test_a_container_has_no_more_rights_than_it_needs(name, pod, container):
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    assert pod["automountServiceAccountToken"] is False
    own = container["securityContext"]
    assert own["allowPrivilegeEscalation"] is False and own["readOnlyRootFilesystem"] is True
    assert own["capabilities"] == {"drop": ["ALL"]}
    volumes = {v["name"] for v in pod["volumes"]}
    claims = {v["metadata"]["name"] for o in of_kind(name, "StatefulSet")
              for v in o["spec"].get("volumeClaimTemplates", [])}
    for mount in container["volumeMounts"]:
        assert mount["name"] in volumes | claims
    assert "/run/relive" in [mount["mountPath"] for mount in container["volumeMounts"]]


@pytest.mark.parametrize("name, pod, container", all_containers())
def test_memory_fits_the_pools_of_its_pod(name, pod, container):
    pools = sum(size(match) for c in containers(pod) for line in commands(c)
                for match in re.findall(r"--size[= ](\S+)", " ".join(line)))
    limits, requests = container["resources"]["limits"], container["resources"]["requests"]
    assert limits["memory"] == requests["memory"]
    assert size(limits["memory"]) >= pools + (128 << 20)


def test_pods_that_share_memory_share_pids():
    (_, pod), = pods("one-host.yaml")
    assert pod["shareProcessNamespace"] is True


def test_tokens_come_from_a_secret():
    text = (FOLDER / "many-hosts.yaml").read_text()
    assert not re.search(r"[0-9a-f]{32}", text)
    for _, pod in pods("many-hosts.yaml"):
        env = {e["name"]: e for e in pod["containers"][0]["env"]}
        assert env["RELIVE_TOKEN"]["valueFrom"]["secretKeyRef"]["name"] == "relive-token"


def test_probes_ask_the_store():
    """Probes of a memory node use no port, and no probe restarts one that runs."""
    for c in (c for name in FILES for _, pod in pods(name) for c in containers(pod)):
        for name in (name for name in PROBES if name in c):
            words = probe_of(c, name)
            assert words[:2] == ["relive", "status"]
            assert c[name]["timeoutSeconds"] > int(words[words.index("--timeout") + 1].rstrip("s"))
        if c["command"][0] == "relive-memnode":
            assert "livenessProbe" not in c
        if c["command"][0].startswith("relive"):
            assert "--health" in probe_of(c, "readinessProbe")


@pytest.mark.parametrize("name, pod, container", all_containers())
def test_options_are_those_of_help(name, pod, container):
    programs = relive.build_info()["programs"]
    if len(programs) < 3:
        pytest.skip("no relive command and daemons here: build them, and put them on PATH")
    for line in commands(container):
        if line[0] not in programs:
            continue
        words = [programs[line[0]]] + ([line[1]] if line[0] == "relive" else [])
        text = subprocess.run([*words, "--help"], capture_output=True, text=True, check=True).stdout
        known = set(re.findall(r"--[a-z-]+", text))
        used = {arg.split("=")[0] for arg in line if arg.startswith("--")}
        assert used - HEALTH <= known
        if "--health" in used - known:
            pytest.skip("relive status has no --health in this build")
