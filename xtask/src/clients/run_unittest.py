"""Runs one module of unittest, and appends a line of JSON to a file at each start and end of a test.

    python run_unittest.py RESULTS MODULE

A start without an end is a test that ended the process or ran into the time limit.
"""

import json
import sys
import traceback
import unittest


class Recorder(unittest.TestResult):
    """Writes results as they come. A test has the worst result of its subtests."""

    def __init__(self, path):
        super().__init__()
        self.file = open(path, "a", encoding="utf-8")
        self.outcome = None

    def write(self, name, outcome, cause=""):
        line = {"test": name, "outcome": outcome, "cause": cause}
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()

    def startTest(self, test):
        super().startTest(test)
        self.outcome = ("pass", "")
        self.write(test.id(), "start")

    def stopTest(self, test):
        super().stopTest(test)
        self.write(test.id(), *self.outcome)

    def fail(self, test, error):
        if error[0].__name__ == "Skipped":  # pytest.skip and pytest.importorskip
            self.addSkip(test, str(error[1]))
            return
        print(f"== {test.id()}", file=sys.stderr)
        traceback.print_exception(*error)
        lines = "".join(traceback.format_exception_only(*error[:2])).strip().splitlines()
        cause = lines[0] if lines else error[0].__name__
        if self.outcome is None:  # setUpClass or an import failed: no test was started.
            self.write(test.id(), "fail", cause)
        else:
            self.outcome = ("fail", cause)

    def addError(self, test, err):
        self.fail(test, err)

    def addFailure(self, test, err):
        self.fail(test, err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.fail(test, err)

    def addSkip(self, test, reason):
        if self.outcome is None:
            self.write(test.id(), "skip", reason)
        elif self.outcome[0] == "pass":
            self.outcome = ("skip", reason)

    def addUnexpectedSuccess(self, test):
        self.outcome = ("fail", "unexpected success")


def main():
    results, module = sys.argv[1:]
    recorder = Recorder(results)
    try:
        tests = unittest.defaultTestLoader.loadTestsFromName(module)
    except BaseException as error:
        if type(error).__name__ != "Skipped":  # pytest.importorskip
            raise
        recorder.write(module, "skip", str(error))
        return
    tests.run(recorder)


if __name__ == "__main__":
    main()
