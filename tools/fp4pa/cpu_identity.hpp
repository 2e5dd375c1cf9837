// What the machine calls its processor, for results that are compared later.
#pragma once

#include <fstream>
#include <string>

namespace fp4pa::tool {

/// The first model name of /proc/cpuinfo (x86), or its implementer and part numbers (Arm), or "unknown".
[[nodiscard]] inline std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  std::string line, arm;
  const auto value = [](const std::string& text) {
    const auto colon = text.find(": ");
    return colon == std::string::npos ? std::string() : text.substr(colon + 2);
  };
  while (std::getline(in, line)) {
    if (line.rfind("model name", 0) == 0) return value(line);
    if (line.rfind("CPU implementer", 0) == 0 && arm.empty()) arm = "Arm implementer " + value(line);
    if (line.rfind("CPU part", 0) == 0 && !arm.empty()) return arm + " part " + value(line);
  }
  return "unknown";
}

}  // namespace fp4pa::tool
