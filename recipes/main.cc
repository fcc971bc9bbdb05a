// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <iostream>

#include "cli.h"

int main(int argc, char** argv) {
  // A reader that goes away (bantam ... | head) must not end a run: writes fail instead, and are looked at below.
  std::signal(SIGPIPE, SIG_IGN);
  const int code =
      bantam::run_program(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc), std::cout, std::cerr);
  std::cout.flush();
  if (std::cout || code != 0) return code;
  struct stat target = {};
  const bool pipe = fstat(STDOUT_FILENO, &target) == 0 && (S_ISFIFO(target.st_mode) || S_ISSOCK(target.st_mode));
  if (pipe) return code;
  std::cerr << "error: standard output: the result could not be written\n  hint: is the disk full?\n";
  return 8;
}
