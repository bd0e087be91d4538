"""Options of the tests that compare with vLLM."""


def pytest_addoption(parser):
    parser.addoption("--seed", type=int, default=0, help="first seed of the lock-step test")
    parser.addoption("--count", type=int, default=20, help="how many seeds")
    parser.addoption("--platform", help="module to import before vLLM, where there is no GPU")
