// Logs a VM's serial console: it has no command of ours.

// Splits longer lines, like the agent.
const longestLine = 16 * 1024

/** Takes output as it comes, and calls back once for the complete lines of each piece. */
export function serialLines(onLines: (lines: Buffer[]) => void): (data: Buffer) => void {
  let rest = Buffer.alloc(0)
  return (data) => {
    rest = Buffer.concat([rest, data])
    const lines: Buffer[] = []
    for (let end = endOfLine(rest); end >= 0; end = endOfLine(rest)) {
      const line = rest.subarray(0, end)
      rest = rest.subarray(rest[end] === 0x0a ? end + 1 : end)
      lines.push(line.at(-1) === 0x0d ? line.subarray(0, -1) : line)
    }
    if (lines.length > 0) onLines(lines)
  }
}

/** Where the first line of these bytes ends; -1 if it is incomplete. */
function endOfLine(bytes: Buffer): number {
  const end = bytes.indexOf(0x0a)
  if (end >= 0 && end <= longestLine) return end
  return bytes.length > longestLine ? longestLine : -1
}
