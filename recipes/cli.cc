// SPDX-License-Identifier: Apache-2.0
#include "cli.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <iterator>
#include <new>
#include <nlohmann/json.hpp>

#include "../kernels/error.h"
#include "check_files.h"
#include "cli_options.h"
#include "commands.h"
#include "help.h"
#include "init.h"
#include "load.h"
#include "resolved.h"
#include "schema.h"
#include "values.h"

namespace bantam {
namespace {

const std::vector<std::string> kCommands = {"train",         "plan", "selftest", "quantize",   "generate", "validate",
                                            "config-schema", "init", "doctor",   "preprocess", "tokenize", "inspect"};

/// Text options of a command that are no recipe keys, read by the same rules as recipe values.
class Options {
 public:
  explicit Options(CLI::App& command) : command_(command) {}
  void text(const char* flag) { command_.add_option(both(flag), values_[flag]); }
  void positional(const char* name) { names_.push_back(name); }

  bool given(const char* flag) const { return command_.count(flag) > 0; }
  const std::string& get(const char* flag) const { return values_.at(flag); }
  std::optional<int64_t> whole(const char* flag, int64_t least, const char* word = nullptr) const {
    if (!given(flag) || (word && get(flag) == word)) return std::nullopt;
    const auto value = parse_integer(get(flag));
    if (!value || *value < least) wrong(flag, str("a whole number >= ", least, word ? str(" or ", word) : ""));
    return value;
  }
  std::optional<double> number(const char* flag, double least, double most) const {
    if (!given(flag)) return std::nullopt;
    const auto value = parse_number(get(flag));
    if (!value || *value < least || *value > most) wrong(flag, str("a number from ", least, " to ", most));
    return value;
  }
  /// Index of the value among `choices`.
  std::optional<size_t> choice(const char* flag, const std::vector<std::string>& choices) const {
    if (!given(flag)) return std::nullopt;
    const auto found = std::find(choices.begin(), choices.end(), get(flag));
    if (found == choices.end()) {
      std::string list;
      for (const std::string& c : choices) list += (list.empty() ? "" : ", ") + c;
      wrong(flag, "one of " + list);
    }
    return static_cast<size_t>(found - choices.begin());
  }
  /// The positional arguments; Error(usage) unless there is one for each name.
  std::vector<std::string> arguments() const {
    std::vector<std::string> out;
    for (const std::string& text : command_.remaining()) {
      if (text == "--") continue;
      if (text.size() > 1 && text[0] == '-') throw_unknown_flag(command_, text);
      out.push_back(text);
    }
    if (out.size() < names_.size()) {
      throw Error(ErrorCode::usage, str("bantam ", command_.get_name(), ": missing ", names_[out.size()]), hint());
    }
    if (out.size() > names_.size()) {
      throw Error(ErrorCode::usage,
                  str("bantam ", command_.get_name(), ": found one argument too many, ", show(out[names_.size()])),
                  hint());
    }
    return out;
  }

  [[noreturn]] void wrong(const char* flag, const std::string& expected_text) const {
    throw Error(ErrorCode::usage, str(flag, ": found ", show(get(flag)), ", expected ", expected_text), hint());
  }

 private:
  static std::string both(const std::string& flag) {
    std::string other = flag;
    std::replace(other.begin() + 2, other.end(), '-', '_');
    return other == flag ? flag : flag + "," + other;
  }
  std::string hint() const { return str("bantam ", command_.get_name(), " --help"); }

  CLI::App& command_;
  std::map<std::string, std::string> values_;
  std::vector<std::string> names_;
};

class Program {
 public:
  Program(std::ostream& out, std::ostream& err) : out_(out), err_(err) {
    // Only where people read along.
    color_ = &err == &std::cerr && isatty(STDERR_FILENO) && std::getenv("NO_COLOR") == nullptr;
  }
  int run(const std::vector<std::string>& args);

 private:
  CLI::App& add(const std::string& name, CommandOptions& options);
  int dispatch(const std::vector<std::string>& args);
  Recipe recipe_of(CLI::App& command, const RecipeArguments& arguments, const CommandOptions& options,
                   const std::string& config = {});
  int plan(CLI::App& command, const RecipeArguments& arguments, const Options& flags, const CommandOptions& options);
  int validate(CLI::App& command, const RecipeArguments& arguments, const CommandOptions& options, bool resolved,
               bool files);
  int init(const Options& arguments, const CommandOptions& options);
  void print_error(const std::string& message, const std::string& hint);

  CLI::App app_;
  std::ostream &out_, &err_;
  bool color_ = false;
};

CLI::App& Program::add(const std::string& name, CommandOptions& options) {
  CLI::App& command = *app_.add_subcommand(name);
  command.allow_extras();
  command.add_flag("--json", options.json);
  command.add_flag("--quiet", options.quiet);
  options.color = color_;
  return command;
}

void Program::print_error(const std::string& message, const std::string& hint) {
  const char *red = color_ ? "\033[1;31m" : "", *plain = color_ ? "\033[0m" : "";
  err_ << red << "error:" << plain << " " << message << "\n";
  if (!hint.empty()) err_ << "  hint: " << hint << "\n";
  err_.flush();
}

// `config`: of bantam plan, a shape that stands for model and data.
Recipe Program::recipe_of(CLI::App& command, const RecipeArguments& arguments, const CommandOptions& options,
                          const std::string& config) {
  std::vector<Override> overrides;
  const std::filesystem::path path = arguments.take(command, overrides);
  if (options.resume && options.overwrite) {
    throw Error(ErrorCode::usage, "--resume and --overwrite contradict each other", "keep one of the two");
  }
  if (path.empty() && overrides.empty() && config.empty()) {
    throw Error(ErrorCode::usage, str("bantam ", command.get_name(), ": missing a recipe, or --base-model and --data"),
                str("bantam init MODEL DATA writes a recipe; bantam ", command.get_name(), " --help"));
  }
  if (!config.empty() && path.empty())
    for (const char* key : {"base_model", "datasets"}) overrides.insert(overrides.begin(), {"--config", key, config});
  LoadedRecipe loaded = load_recipe(path, overrides);
  if (config.empty()) {
    const auto told = check_files(loaded.recipe);
    loaded.notices.insert(loaded.notices.end(), told.begin(), told.end());
  }
  if (!options.quiet) {
    for (const std::string& notice : loaded.notices) err_ << "note: " << notice << "\n";
    err_.flush();
  }
  return loaded.recipe;
}

int Program::plan(CLI::App& command, const RecipeArguments& arguments, const Options& flags,
                  const CommandOptions& options) {
  PlanCommandOptions o;
  o.common = options;
  if (flags.given("--config")) o.config = flags.get("--config");
  if (flags.given("--svg")) o.svg = flags.get("--svg");
  if (flags.given("--assume-memory")) {
    const auto bytes = parse_size(flags.get("--assume-memory"));
    if (!bytes || *bytes < 1) flags.wrong("--assume-memory", "a size such as 24GiB");
    o.assume_memory = *bytes;
  }
  if (flags.given("--assume-rate")) {
    const auto rate = parse_rate(flags.get("--assume-rate"));
    if (!rate) flags.wrong("--assume-rate", "FLOP/s, such as 400G, 90T or 7e14");
    o.assume_rate = *rate;
  }
  return plan_command(recipe_of(command, arguments, options, o.config.string()), o);
}

int Program::validate(CLI::App& command, const RecipeArguments& arguments, const CommandOptions& options, bool resolved,
                      bool files) {
  std::vector<Override> overrides;
  const std::filesystem::path path = arguments.take(command, overrides);
  if (path.empty() && overrides.empty()) {
    throw Error(ErrorCode::usage, "bantam validate: missing a recipe", "bantam validate --help");
  }
  using Json = nlohmann::ordered_json;
  const auto print = [&](const Json& json) {
    out_ << json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  };
  LoadedRecipe loaded;
  try {
    loaded = load_recipe(path, overrides);
    if (files) {
      const auto told = check_files(loaded.recipe);
      loaded.notices.insert(loaded.notices.end(), told.begin(), told.end());
    }
  } catch (const Error& e) {
    if (options.json) {
      Json errors = Json::array();
      std::istringstream lines(e.what());
      for (std::string line; std::getline(lines, line);) errors.push_back(line);
      print({{"valid", false}, {"errors", errors}});
    }
    throw;
  }
  if (options.json) {
    Json json = {{"valid", true}, {"fingerprint", recipe_fingerprint(loaded.recipe)}, {"notes", loaded.notices}};
    if (resolved) json["resolved"] = to_yaml(loaded.recipe);
    print(json);
    return 0;
  }
  if (!options.quiet) {
    for (const std::string& notice : loaded.notices) err_ << "note: " << notice << "\n";
  }
  if (resolved) {
    out_ << to_yaml(loaded.recipe);
  } else {
    out_ << (path.empty() ? "flags" : path.string()) << ": valid\n";
  }
  return 0;
}

int Program::init(const Options& arguments, const CommandOptions& options) {
  const std::vector<std::string> names = arguments.arguments();
  const std::string output = arguments.given("--output") ? arguments.get("--output") : "recipe.yaml";
  // Written with the paths as given, checked as they are meant from here.
  const LoadedRecipe loaded = load_recipe({}, {{"MODEL", "base_model", names[0]}, {"DATA", "datasets", names[1]}});
  Recipe recipe = loaded.recipe;
  check_files(recipe);
  const std::string text =
      init_recipe(names[0], names[1], recipe.datasets[0].type, output == "-" ? "recipe.yaml" : output);
  if (output == "-") {
    out_ << text;
    return 0;
  }
  std::FILE* file = std::fopen(output.c_str(), options.overwrite ? "w" : "wx");
  if (file == nullptr) {
    const bool exists = errno == EEXIST;
    throw Error(ErrorCode::io, str(output, ": ", exists ? "exists" : std::strerror(errno)),
                exists ? "--overwrite replaces it, --output names another file" : "");
  }
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if ((std::fclose(file) != 0) || !written) throw Error(ErrorCode::io, str(output, ": ", std::strerror(errno)));
  if (!options.quiet) err_ << "wrote " << output << "; next: bantam plan " << output << "\n";
  return 0;
}

int Program::dispatch(const std::vector<std::string>& args) {
  CommandOptions options;
  app_.set_help_flag("-h,--help");
  app_.set_version_flag("--version", std::string("bantam ") + BANTAM_VERSION);
  app_.require_subcommand(0, 1);
  app_.allow_extras();
  std::map<std::string, CLI::App*> commands;
  for (const std::string& name : kCommands) commands[name] = &add(name, options);

  std::map<std::string, RecipeArguments> recipes;
  for (const char* name : {"train", "plan", "selftest", "validate", "preprocess"}) {
    // Some hundred flags: only where they may be needed.
    RecipeArguments& arguments = recipes[name];
    if (std::count(args.begin(), args.end(), name) > 0) arguments.add_to(*commands[name]);
  }
  for (const char* name : {"train", "plan"}) {
    commands[name]->add_flag("--resume", options.resume);
    commands[name]->add_flag("--overwrite", options.overwrite);
  }
  std::map<std::string, Options> debug;
  for (const char* name : {"train", "preprocess"}) {
    debug.try_emplace(name, *commands[name]).first->second.text("--debug");
  }
  Options plan_options(*commands["plan"]);
  for (const char* flag : {"--config", "--svg", "--assume-memory", "--assume-rate"}) plan_options.text(flag);
  Options selftest(*commands["selftest"]);
  selftest.text("--steps");
  bool resolved = false, no_files = false;
  commands["validate"]->add_flag("--resolved", resolved);
  commands["validate"]->add_flag("--no-files,--no_files", no_files);

  Options init_options(*commands["init"]);
  init_options.positional("MODEL");
  init_options.positional("DATA");
  init_options.text("--output");
  commands["init"]->add_flag("--overwrite", options.overwrite);

  Options quantize(*commands["quantize"]);
  quantize.positional("MODEL");
  std::string quantize_out;
  commands["quantize"]->add_option("-o,--output", quantize_out);
  quantize.text("--quant-type");
  quantize.text("--device");
  quantize.text("--num-threads");
  CLI::Option* double_quant = commands["quantize"]->add_flag("--double-quant,--double_quant");
  CLI::Option* no_double_quant =
      commands["quantize"]->add_flag("--no-double-quant,--no_double_quant")->disable_flag_override();
  commands["quantize"]->add_flag("--overwrite", options.overwrite);

  Options generate(*commands["generate"]);
  generate.positional("MODEL or RUN");
  for (const char* flag : {"--prompt", "--adapter", "--max-new-tokens", "--temperature", "--top-p", "--seed", "--dtype",
                           "--quant-type", "--device", "--num-threads"}) {
    generate.text(flag);
  }
  bool raw = false, chat = false;
  commands["generate"]->add_flag("--raw", raw);
  commands["generate"]->add_flag("--chat", chat);
  generate.text("--system");

  Options tokenize(*commands["tokenize"]);
  tokenize.positional("MODEL or RUN");
  for (const char* flag : {"--text", "--file", "--chat-template", "--rows"}) tokenize.text(flag);
  TokenizeCommandOptions to;
  commands["tokenize"]->add_flag("--chat", to.chat);
  commands["tokenize"]->add_flag("--no-special,--no_special", to.no_special);
  commands["tokenize"]->add_flag("--parse-special,--parse_special", to.parse_special);
  Options inspect(*commands["inspect"]);
  inspect.positional("MODEL or RUN");
  for (const char* flag : {"--system", "--chat-template"}) inspect.text(flag);
  InspectCommandOptions io;
  CLI::Option* inspect_prompt = commands["inspect"]->add_option("--prompt", io.prompt)->expected(0, 1);
  Options schema(*commands["config-schema"]);
  Options doctor(*commands["doctor"]);

  std::vector<std::string> reversed = join_switch_values(args);
  std::reverse(reversed.begin(), reversed.end());  // CLI11 takes them from the back
  const auto parsed = [&]() -> CLI::App* {
    const auto list = app_.get_subcommands();
    return list.empty() ? nullptr : list[0];
  };
  try {
    app_.parse(reversed);
  } catch (const CLI::CallForVersion&) {
    out_ << "bantam " << BANTAM_VERSION << "\n";
    return 0;
  } catch (const CLI::CallForHelp&) {
    out_ << help_text(parsed() ? parsed()->get_name() : "");
    return 0;
  } catch (const CLI::ParseError& e) {
    throw Error(ErrorCode::usage, e.what(), str("bantam ", parsed() ? parsed()->get_name() + " " : "", "--help"));
  }

  CLI::App* command = parsed();
  if (command == nullptr) {
    const auto rest = app_.remaining();
    if (rest.empty()) {
      err_ << help_text("");
      return static_cast<int>(ErrorCode::usage);
    }
    const std::string near = nearest(rest[0], kCommands);
    throw Error(ErrorCode::usage,
                str(show(rest[0]), ": unknown command", near.empty() ? "" : str(", did you mean ", near, "?")),
                "bantam --help");
  }
  if (const auto before = app_.remaining(); !before.empty()) {
    throw Error(ErrorCode::usage, str("found ", show(before[0]), " before the command"),
                "flags stand after the command");
  }
  const std::string name = command->get_name();
  if (name == "validate") return validate(*command, recipes[name], options, resolved, !no_files);
  if (name == "train" || name == "preprocess") {
    options.debug_rows = debug.at(name).whole("--debug", 0).value_or(0);
    const Recipe recipe = recipe_of(*command, recipes[name], options);
    return name == "train" ? train_command(recipe, options) : preprocess_command(recipe, options);
  }
  if (name == "tokenize") {
    to.common = options;
    to.model_or_run = tokenize.arguments()[0];
    if (tokenize.given("--text")) to.text = tokenize.get("--text");
    if (tokenize.given("--file")) to.file = tokenize.get("--file");
    if (to.text && !to.file.empty())
      throw Error(ErrorCode::usage, "--text and --file contradict each other", "keep one of the two");
    if (tokenize.given("--chat-template")) to.chat_template = tokenize.get("--chat-template"), to.chat = true;
    to.rows = tokenize.whole("--rows", 1).value_or(to.rows);
    return tokenize_command(to);
  }
  if (name == "inspect") {
    io.common = options;
    io.model_or_run = inspect.arguments()[0];
    io.only_prompt = inspect_prompt->count() > 0;
    if (inspect.given("--system")) io.system = inspect.get("--system");
    if (inspect.given("--chat-template")) io.chat_template = inspect.get("--chat-template");
    return inspect_command(io);
  }
  if (name == "plan") return plan(*command, recipes[name], plan_options, options);
  if (name == "selftest") {
    SelftestCommandOptions o;
    o.common = options;
    o.steps = selftest.whole("--steps", 1).value_or(o.steps);
    return selftest_command(recipe_of(*command, recipes[name], options), o);
  }
  if (name == "init") return init(init_options, options);
  if (name == "config-schema") {
    schema.arguments();
    out_ << config_schema();
    return 0;
  }
  if (name == "doctor") {
    doctor.arguments();
    return doctor_command(options);
  }
  if (name == "quantize") {
    const auto paths = quantize.arguments();
    QuantizeCommandOptions o;
    o.common = options;
    quantize.choice("--quant-type", {"nf4"});
    if (double_quant->count() && no_double_quant->count()) {
      throw Error(ErrorCode::usage, "--double-quant and --no-double-quant contradict each other");
    }
    if (double_quant->count()) {
      const auto value = parse_bool(double_quant->results().back());
      if (!value) throw Error(ErrorCode::usage, "--double-quant: expected true or false");
      o.double_quant = *value;
    }
    if (no_double_quant->count()) o.double_quant = false;
    if (quantize.given("--device")) o.device = quantize.get("--device");
    o.num_threads = quantize.whole("--num-threads", 1, "auto");
    if (quantize_out.empty())
      throw Error(ErrorCode::usage, "bantam quantize: missing -o DIR", "bantam quantize --help");
    return quantize_command(paths[0], quantize_out, o);
  }
  GenerateCommandOptions o;
  o.common = options;
  o.model_or_run = generate.arguments()[0];
  if (!generate.given("--prompt"))
    throw Error(ErrorCode::usage, "bantam generate: missing --prompt", "bantam generate --help");
  o.prompt = generate.get("--prompt");
  if (o.prompt == "-") o.prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  if (generate.given("--adapter")) o.adapter = generate.get("--adapter");
  o.max_new_tokens = generate.whole("--max-new-tokens", 1).value_or(o.max_new_tokens);
  o.temperature = generate.number("--temperature", 0, 100).value_or(o.temperature);
  o.top_p = generate.number("--top-p", 0, 1).value_or(o.top_p);
  if (o.top_p == 0) throw Error(ErrorCode::usage, "--top-p: found 0, expected a number > 0 and <= 1");
  o.seed = generate.whole("--seed", 0).value_or(o.seed);
  o.raw = raw;
  o.chat = chat;
  if (raw && chat) throw Error(ErrorCode::usage, "--raw and --chat contradict each other", "keep one of the two");
  if (generate.given("--system")) o.system = generate.get("--system");
  if (const auto v = generate.choice("--dtype", {"auto", "bf16", "f32"})) o.dtype = static_cast<Recipe::Dtype>(*v);
  if (const auto v = generate.choice("--quant-type", {"nf4", "none"})) {
    o.quant_type = *v == 0 ? Recipe::QuantType::nf4 : Recipe::QuantType::none;
  }
  if (generate.given("--device")) o.device = generate.get("--device");
  o.num_threads = generate.whole("--num-threads", 1, "auto");
  return generate_command(o);
}

int Program::run(const std::vector<std::string>& args) {
  try {
    return dispatch(args);
  } catch (const Error& e) {
    print_error(e.what(), e.hint());
    return static_cast<int>(e.code());
  } catch (const std::bad_alloc&) {
    print_error("out of memory", "bantam plan shows what a run takes");
    return static_cast<int>(ErrorCode::does_not_fit);
  } catch (const std::exception& e) {
    print_error(str("internal: ", e.what()), "");
    return static_cast<int>(ErrorCode::internal);
  }
}

}  // namespace

int run_program(const std::vector<std::string>& args, std::ostream& out, std::ostream& err) {
  return Program(out, err).run(args);
}

}  // namespace bantam
