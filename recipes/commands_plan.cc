// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "commands.h"
#include "session.h"

namespace bantam {

int plan_command(const Recipe& recipe, const CommandOptions& options) {
  Session s = open_session(recipe, options);
  const Dataset* eval = s.eval.samples.empty() ? nullptr : &s.eval;
  const RunPlan run = plan_run(s.train, eval, s.options);
  const Trainer trainer(*s.context, s.model, *s.adapters, s.options.trainer, run.max_tokens);
  const std::string text =
      options.json ? plan_json(run, trainer.plan()) : s.train.report.summary() + plan_text(run, trainer.plan());
  std::fputs(text.c_str(), stdout);
  if (s.options.memory_limit > 0)
    check_fits(trainer.plan(), trainer.plan().total(), s.options.memory_limit, "memory_limit");
  return 0;
}

}  // namespace bantam
