// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "../finetune/text/chat_template.h"
#include "../quant/safetensors.h"
#include "commands.h"
#include "data_text.h"
#include "planning.h"
#include "run_folder.h"

namespace bantam {

namespace {

// Ctrl-C and SIGTERM: the first asks the run to stop, the second ends the process at once. A handler may only write to
// a pipe; a thread at the other end makes it a stop request.
class StopOnSignal {
 public:
  StopOnSignal() {
    if (::pipe(pipe_) != 0) throw Error(ErrorCode::internal, "no pipe for signals");
    write_end() = pipe_[1];
    struct sigaction action {};
    action.sa_handler = handle;
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGINT, &action, &old_int_);
    ::sigaction(SIGTERM, &action, &old_term_);
    watcher_ = std::thread([this] {
      unsigned char signal = 0;
      if (::read(pipe_[0], &signal, 1) != 1 || signal == 0) return;
      received_ = signal;
      source_.request_stop();
    });
  }
  ~StopOnSignal() {
    ::sigaction(SIGINT, &old_int_, nullptr);
    ::sigaction(SIGTERM, &old_term_, nullptr);
    const unsigned char done = 0;
    [[maybe_unused]] const auto n = ::write(pipe_[1], &done, 1);
    watcher_.join();
    ::close(pipe_[0]);
    ::close(pipe_[1]);
  }
  std::stop_token token() const { return source_.get_token(); }
  int received() const { return received_; }

 private:
  static int& write_end() {
    static int fd = -1;
    return fd;
  }
  static void handle(int signal) {
    static std::atomic<int> count{0};
    if (count.fetch_add(1) > 0) ::_exit(128 + signal);
    const auto byte = static_cast<unsigned char>(signal);
    [[maybe_unused]] const auto n = ::write(write_end(), &byte, 1);
    static constexpr char kText[] = "\nstopping after this micro-batch; again to stop at once\n";
    [[maybe_unused]] const auto m = ::write(STDERR_FILENO, kText, sizeof kText - 1);
  }
  int pipe_[2] = {-1, -1};
  struct sigaction old_int_ {
  }, old_term_{};
  std::stop_source source_;
  std::atomic<int> received_{0};
  std::thread watcher_;
};

class Progress {
 public:
  Progress(const Recipe& recipe, const CommandOptions& options, RunFolder& folder, bool on_device)
      : on_device_(on_device),
        quiet_(options.quiet),
        live_(!options.quiet && isatty(STDERR_FILENO)),
        every_(recipe.logging_steps),
        folder_(folder) {
    write_metrics_ = std::find(recipe.report_to.begin(), recipe.report_to.end(), "jsonl") != recipe.report_to.end();
  }
  void step(const StepEvent& e) {
    if (write_metrics_ && (e.step % every_ == 0 || e.step == e.total_steps)) {
      nlohmann::ordered_json j = {{"step", e.step},
                                  {"epoch", e.epoch},
                                  {"loss", number(e.result.loss)},
                                  {"learning_rate", e.lr},
                                  {"grad_norm", number(e.result.grad_norm)},
                                  {"tokens", e.result.tokens},
                                  {"targets", e.result.total_weight},
                                  {"seconds", e.seconds},
                                  {"tokens_per_second", e.tokens_per_second},
                                  {on_device_ ? "device_bytes" : "anonymous_bytes", e.memory_bytes}};
      if (e.result.skipped) j["skipped"] = true;
      folder_.metric(j.dump());
    }
    if (quiet_ || (!live_ && e.step % every_ != 0)) return;
    std::fprintf(stderr, "%sstep %lld/%lld  epoch %.2f  loss %.4f  lr %.2e  grad norm %.3f  %.0f tokens/s  ETA %s%s",
                 live_ ? "\r\033[K" : "", static_cast<long long>(e.step), static_cast<long long>(e.total_steps),
                 e.epoch, e.result.loss, e.lr, e.result.grad_norm, e.tokens_per_second,
                 time_text(e.eta_seconds).c_str(), live_ ? "" : "\n");
    open_line_ = live_;
  }
  void eval(const EvalEvent& e) {
    if (write_metrics_)
      folder_.metric(nlohmann::ordered_json{
          {"step", e.step}, {"eval_loss", number(e.result.loss)}, {"eval_targets", e.result.targets}}
                         .dump());
    line(str("step ", e.step, ": held-out loss ", loss_text(e.result.loss), " (perplexity ",
             loss_text(std::exp(e.result.loss)), ") on ", e.result.targets, " tokens"));
  }
  void line(const std::string& text) {
    if (quiet_) return;
    close_line();
    std::fprintf(stderr, "%s\n", text.c_str());
  }
  void warn(const std::string& text) {
    close_line();
    std::fprintf(stderr, "warning: %s\n", text.c_str());
  }
  static std::string loss_text(double v) {
    char text[32];
    std::snprintf(text, sizeof text, "%.4f", v);
    return text;
  }

 private:
  static nlohmann::ordered_json number(double v) {
    return std::isfinite(v) ? nlohmann::ordered_json(v) : nlohmann::ordered_json(nullptr);
  }
  void close_line() {
    if (open_line_) std::fprintf(stderr, "\n");
    open_line_ = false;
  }
  bool on_device_, quiet_, live_, open_line_ = false, write_metrics_ = true;
  int64_t every_;
  RunFolder& folder_;
};

void print_report(const TrainReport& r, const CommandOptions& options, const RunFolder& folder, bool on_device) {
  const bool evaluated = std::isfinite(r.last_eval_loss), both = evaluated && std::isfinite(r.first_eval_loss);
  if (options.json) {
    nlohmann::ordered_json j = {{"finished", r.finished},
                                {"step", r.state.step},
                                {"total_steps", r.state.total_steps},
                                {"output_dir", folder.path().string()},
                                {"seconds", r.train_seconds},
                                {"tokens", r.tokens},
                                {"skipped_steps", r.skipped_steps},
                                {"planned_recompute_overhead", r.planned_overhead},
                                {"measured_recompute_overhead", r.measured_overhead},
                                {on_device ? "planned_device_bytes" : "planned_anonymous_bytes", r.planned_memory},
                                {on_device ? "peak_device_bytes" : "peak_anonymous_bytes", r.peak_memory}};
    if (r.offloaded_memory > 0) j["offloaded_bytes"] = r.offloaded_memory;
    if (both) j["first_eval_loss"] = r.first_eval_loss;
    if (evaluated) j["last_eval_loss"] = r.last_eval_loss;
    std::printf("%s\n", j.dump().c_str());
    return;
  }
  if (options.quiet) return;
  std::printf("%lld steps, %lld tokens in %s (%.0f tokens/s)\n", static_cast<long long>(r.state.step),
              static_cast<long long>(r.tokens), time_text(r.train_seconds).c_str(),
              r.train_seconds > 0 ? static_cast<double>(r.tokens) / r.train_seconds : 0.0);
  if (both)
    std::printf("held-out loss %.4f before, %.4f after (%+.1f %%)\n", r.first_eval_loss, r.last_eval_loss,
                100 * (r.last_eval_loss / r.first_eval_loss - 1));
  std::printf("%s: %s planned, %s measured\n", on_device ? "device memory" : "memory without the mapped weights",
              size_text(r.planned_memory).c_str(), size_text(r.peak_memory).c_str());
  if (r.offloaded_memory > 0) std::printf("layer inputs in host memory: %s\n", size_text(r.offloaded_memory).c_str());
  if (r.measured_overhead > 0 || r.planned_overhead > 0)
    std::printf("recompute: %+.1f %% planned, %+.1f %% measured\n", 100 * r.planned_overhead,
                100 * r.measured_overhead);
  else
    std::printf("recompute: none\n");
  if (r.skipped_steps > 0)
    std::printf("%lld steps were skipped, see the warnings\n", static_cast<long long>(r.skipped_steps));
  std::printf("%s %s\n", r.finished ? "adapter in" : "stopped; the same command goes on from", folder.path().c_str());
}

}  // namespace

int train_command(const Recipe& recipe, const CommandOptions& options) {
  RunFolder folder(recipe, options);
  Session s = open_session(recipe, options, false, folder.earlier_date());
  const StopOnSignal signals;
  const bool on_device = !s.context->backend().host_memory;
  Progress progress(recipe, options, folder, on_device);
  if (on_device) progress.line(str("device: ", device_text(*s.context)));
  progress.line(data_text(s, packing_of(s)) + debug_rows(s, options));
  if (recipe.resume_from_checkpoint != "auto" && recipe.resume_from_checkpoint != "false")
    s.options.resume_from = recipe.resume_from_checkpoint;
  const Planned planned = make_plan(s, recipe, {.earlier = folder.earlier_plan()});
  progress.line(plan_text(planned));
  require_fit(planned);
  load_weights(s, recipe, options);

  TrainHooks hooks;
  hooks.on_plan = [&](const RunPlan&, const Trainer&) {
    folder.begin(recipe, plan_json(planned), data_json(s, packing_of(s)));  // batches as planned
  };
  hooks.on_resume = [&](const RunState& state) {
    progress.line(str("going on from step ", state.step, " of ", state.total_steps));
    folder.drop_metrics_after(state.step);
  };
  hooks.on_step = [&](const StepEvent& e) {
    progress.step(e);
    return true;
  };
  hooks.on_eval = [&](const EvalEvent& e) { progress.eval(e); };
  hooks.on_save = [&](const std::filesystem::path& p, const RunState&) { progress.line("saved " + p.string()); };
  hooks.warn = [&](const std::string& m) { progress.warn(m); };

  const Dataset* eval = s.eval.samples.empty() ? nullptr : &s.eval;
  const TrainReport report = train(*s.context, s.model, *s.adapters, s.train, eval, s.options, hooks, signals.token());
  if (report.finished) {
    for (const auto& [name, content] : s.tokenizer->files()) write_file_atomically(folder.path() / name, content);
    if (s.chat_template) write_file_atomically(folder.path() / "chat_template.jinja", s.chat_template->source(false));
    folder.finish();
  }
  print_report(report, options, folder, on_device);
  return report.finished ? 0 : signals.received() == SIGTERM ? 143 : 130;
}

}  // namespace bantam
