import { text } from 'node:stream/consumers'
import type { Readable } from 'node:stream'
import bcrypt from 'bcrypt'
import { newId } from '../../lib/ids.ts'
import { tarOf } from './archives.ts'
import { docker } from './engine.ts'
import { eventually } from './eventually.ts'
import { privateRegistry } from './stack.ts'

// A registry that asks for a login: CNCF Distribution, on this machine's engine.

const folder = '/etc/test-registry'
const settings = `version: 0.1
storage:
  filesystem:
    rootdirectory: /var/lib/registry
http:
  addr: 127.0.0.1:${privateRegistry.port}
auth:
  htpasswd:
    realm: test
    path: ${folder}/htpasswd
`

export type Users = Record<string, string>
export type PrivateRegistry = Awaited<ReturnType<typeof openPrivateRegistry>>

export async function openPrivateRegistry(users: Users) {
  const address = `127.0.0.1:${privateRegistry.port}`
  const name = `test-registry-${privateRegistry.port}`
  await docker
    .getContainer(name)
    .remove({ force: true, v: true })
    .catch(() => {}) // of an interrupted run
  const container = await docker.createContainer({
    name,
    Image: 'registry:2',
    Entrypoint: ['registry'],
    Cmd: ['serve', `${folder}/config.yml`],
    HostConfig: { NetworkMode: 'host' },
  })
  const pushed = new Set<string>()

  // The registry reads its users again if their file is newer, and an archive has whole seconds.
  let changedAt = Date.now()
  async function setUsers(these: Users): Promise<void> {
    changedAt += 1000
    const lines = await Promise.all(
      Object.entries(these).map(async ([user, password]) => `${user}:${await bcrypt.hash(password, 4)}\n`),
    )
    const entries = [
      { name: `${folder}/config.yml`.slice(1), content: settings },
      { name: `${folder}/htpasswd`.slice(1), content: lines.join(''), mtime: new Date(changedAt) },
    ]
    await container.putArchive(await tarOf(entries), { path: '/' })
  }

  const takes = async (user: string, password: string): Promise<boolean> => {
    const authorization = `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`
    const answer = await fetch(`http://${address}/v2/`, { headers: { authorization } }).catch(() => null)
    return answer?.status === 200
  }

  await setUsers(users)
  await container.start()
  const [[user, password] = ['', '']] = Object.entries(users)
  await eventually(() => takes(user, password))

  return {
    address,

    /** Pushes an image that sleeps until it is stopped, and removes it from the engine. Returns its name. */
    async push(repository: string): Promise<string> {
      const image = `${address}/${repository}:v1`
      const made = await docker.createContainer({ Image: 'busybox:latest', Cmd: ['true'] })
      const changes = [`LABEL test=${newId()}`, 'CMD ["sleep", "3600"]']
      await made.commit({ repo: `${address}/${repository}`, tag: 'v1', changes })
      await made.remove()
      const authconfig = { username: user, password, serveraddress: '' }
      const said = await text((await docker.getImage(image).push({ authconfig })) as Readable)
      if (!/digest: sha256:/.test(said)) throw new Error(said)
      await docker.getImage(image).remove()
      pushed.add(image)
      return image
    },

    /** Gives the registry other users, and waits until it knows one of them. */
    async change(these: Users): Promise<void> {
      await setUsers(these)
      const [[first, its] = ['', '']] = Object.entries(these)
      await eventually(() => takes(first, its))
    },

    async close(): Promise<void> {
      await container.remove({ force: true, v: true })
      for (const image of pushed)
        await docker
          .getImage(image)
          .remove({ force: true })
          .catch(() => {}) // it was never pulled
    },
  }
}
