// fp4pa: the command line of libfp4pa. This file only names the subcommands and turns every way of failing into a
// sentence on stderr and an exit code.
#include <cstdio>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "fp4pa/backends.hpp"
#include "tools/fp4pa/commands.hpp"
#include "tools/fp4pa/exit_codes.hpp"
#include "weights/safetensors.hpp"

namespace {

int fail(fp4pa::tool::Exit code, const char* message) {
  std::fprintf(stderr, "fp4pa: %s\n", message);
  return static_cast<int>(code);
}

int end_of_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) return fail(fp4pa::tool::Exit::kInputFile, "cannot write to stdout");
  return 0;
}

/// The words in front of the options must be commands. CLI11 would say neither which word is none nor which there are.
void refuse_unknown_command(const CLI::App& app, std::span<char*> words) {
  const std::vector<const CLI::App*> commands = app.get_subcommands({});
  if (words.empty() || commands.empty() || words.front()[0] == '-') return;
  std::string allowed;
  for (const CLI::App* command : commands) {
    if (command->get_name() == words.front()) return refuse_unknown_command(*command, words.subspan(1));
    allowed += (allowed.empty() ? "" : ", ") + command->get_name();
  }
  throw fp4pa::tool::Failure(fp4pa::tool::Exit::kUsage,
                             std::string("unknown command '") + words.front() + "'; allowed: " + allowed);
}

}  // namespace

int main(int argc, char** argv) {
  using fp4pa::tool::Exit;
  CLI::App app{"FP4 paged attention: inspect the build, run attention on files, quantise tensors, measure speed.",
               "fp4pa"};
  app.footer(fp4pa::tool::kExitCodeHelp);
  app.set_version_flag("--version", fp4pa::version_string());
  app.require_subcommand(1);
  fp4pa::tool::add_info(app);
  fp4pa::tool::add_attend(app);
  fp4pa::tool::add_quantize(app);
  fp4pa::tool::add_gemm(app);
  fp4pa::tool::add_bench(app);
  try {
    refuse_unknown_command(app, std::span(argv, static_cast<std::size_t>(argc)).subspan(1));
    app.parse(argc, argv);
    return end_of_output();
  } catch (const CLI::ParseError& e) {
    // CLI11 prints help and errors itself; its own codes (100 and up) all mean bad usage.
    if (app.exit(e) != 0) return static_cast<int>(Exit::kUsage);
    return end_of_output();
  } catch (const fp4pa::tool::Failure& e) {
    std::fflush(stdout);
    return fail(e.code(), e.what());
  } catch (const fp4pa::safetensors::Error& e) {
    return fail(Exit::kInputFile, e.what());
  } catch (const std::bad_alloc&) {
    return fail(Exit::kOutOfMemory, "out of memory");
  } catch (const std::exception& e) {
    return fail(Exit::kInternal, e.what());
  }
}
