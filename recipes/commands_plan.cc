// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "../quant/safetensors.h"
#include "commands.h"
#include "plan_report.h"

namespace bantam {

int plan_command(const Recipe& recipe, const PlanCommandOptions& options) {
  const bool shape_only = !options.config.empty();
  const bool assume_device = options.assume_memory > 0 && options.assume_rate > 0;
  Session s = shape_only ? shape_session(recipe, options.config, assume_device)
                         : open_session(recipe, options.common, assume_device);
  const Planned planned = make_plan(s, recipe,
                                    {.assume_memory = options.assume_memory,
                                     .assume_rate = options.assume_rate,
                                     .earlier = {},
                                     .shape_only = shape_only});
  const PlanReport report = report_of(planned);
  if (!options.svg.empty()) write_file_atomically(options.svg, plan_svg(planned));
  const std::string text = options.common.json ? report_json(planned, report)
                                               : (shape_only ? std::string() : s.train.report.summary()) +
                                                     plan_text(planned) + report_text(planned, report);
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  require_fit(planned);
  return 0;
}

}  // namespace bantam
