import type Docker from 'dockerode'

/** Runs a command in a container; returns its output and exit code. */
export async function execInside(
  container: Docker.Container,
  command: string[],
): Promise<{ output: string; code: number | null }> {
  const exec = await container.exec({ Cmd: command, AttachStdout: true, AttachStderr: true, Tty: true })
  const parts: Buffer[] = await (await exec.start({ Tty: true })).toArray()
  const output = Buffer.concat(parts).toString().replaceAll('\r\n', '\n').trimEnd()
  return { output, code: (await exec.inspect()).ExitCode }
}

/** Runs a script in a container; returns its output. Throws if the script fails. */
export async function runInside(engine: Docker, name: string, script: string): Promise<string> {
  const { output, code } = await execInside(engine.getContainer(name), ['sh', '-c', script])
  if (code !== 0) throw new Error(`${script}: exit code ${code}: ${output}`)
  return output
}
