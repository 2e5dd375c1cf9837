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

using fp4pa::tool::Command;

int fail(fp4pa::tool::Exit code, const char* message) {
  std::fprintf(stderr, "fp4pa: %s\n", message);
  return static_cast<int>(code);
}

int end_of_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) return fail(fp4pa::tool::Exit::kInputFile, "cannot write to stdout");
  return 0;
}

/// The words in front of the options must be commands. CLI11 would say neither which word is none nor which there are.
void refuse_unknown_command(Command app, std::span<char*> words) {
  const std::vector<Command> commands = app.subcommands();
  if (words.empty() || commands.empty() || words.front()[0] == '-') return;
  std::string allowed;
  for (const Command command : commands) {
    if (command.name() == words.front()) return refuse_unknown_command(command, words.subspan(1));
    allowed += (allowed.empty() ? "" : ", ") + command.name();
  }
  throw fp4pa::tool::Failure(fp4pa::tool::Exit::kUsage,
                             std::string("unknown command '") + words.front() + "'; allowed: " + allowed);
}

}  // namespace

int main(int argc, char** argv) {
  using fp4pa::tool::Exit;
  fp4pa::tool::CommandLine line("FP4 paged attention: inspect the build, run attention on files, quantise tensors, measure speed.", "fp4pa");
  line.version(fp4pa::version_string());
  const Command app = line.root();
  app.footer(fp4pa::tool::kExitCodeHelp);
  app.require_subcommand(true);
  fp4pa::tool::add_info(app);
  fp4pa::tool::add_attend(app);
  fp4pa::tool::add_quantize(app);
  fp4pa::tool::add_gemm(app);
  fp4pa::tool::add_bench(app);
  try {
    refuse_unknown_command(app, std::span(argv, static_cast<std::size_t>(argc)).subspan(1));
    if (line.parse_main(argc, argv)) return static_cast<int>(Exit::kUsage);
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
