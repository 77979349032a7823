import type Docker from 'dockerode'
import type { ContainerInspectInfo } from 'dockerode'
import { EngineRefused } from '../errors.ts'
import { labels } from './spec.ts'

// A machine that starts has no group of applications yet, and applies its size by itself.
const apply = `
[ -d /sys/fs/cgroup/apps ] || [ -d /sys/fs/cgroup/memory/apps ] || exit 0
exec machine-limit`

/**
 * Gives the applications in a running machine their part of its new size; of any other container, does nothing. Throws
 * EngineRefused if they use more.
 */
export async function limitApplications(docker: Docker, info: ContainerInspectInfo): Promise<void> {
  if (!info.Config.Labels[labels.machine] || !info.State.Running) return
  const exec = await docker
    .getContainer(info.Id)
    .exec({ Cmd: ['sh', '-c', apply], AttachStdout: true, AttachStderr: true })
  const output = await exec.start({})
  output.resume()
  await new Promise((resolve) => output.once('close', resolve))
  const { ExitCode } = await exec.inspect()
  if (ExitCode !== 0)
    throw new EngineRefused('The applications of the machine use more memory than the new limit')
}
