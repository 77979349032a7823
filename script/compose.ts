// What docker-compose.yml needs besides the roles. `compose.ts keys` makes the secrets, each readable only where it is
// needed; `compose.ts setup` makes the first tenant and its host's enrolment token; `compose.ts worker-polls` fails
// unless the worker in this container polls Temporal.
import { execFileSync } from 'node:child_process'
import { chmodSync, chownSync, existsSync, rmSync } from 'node:fs'
import { hostname } from 'node:os'
import { readSettings } from '../config.ts'
import { platformQueue } from '../lib/operation-workflows.ts'
import { temporalConnection } from '../lib/temporal.ts'
import {
  keyLine,
  makeOnce,
  mongodbKey,
  type MongodbSecrets,
  mongodbPasswords,
  newPassword,
  writePrivate,
} from './lib/secrets.ts'

/** The users of the images that read the files. */
const node = 1000
const mongod = 999

function makeKeys(): void {
  for (const key of ['master.key', 'codec.key']) make(`/keys/platform/${key}`, keyLine, node)
  rmSync('/keys/host/codec.key', { force: true }) // hosts once had it

  make('/keys/mongodb/keyfile', mongodbKey, mongod)
  const { appPassword } = JSON.parse(
    make('/keys/mongodb/passwords.json', mongodbPasswords, 0),
  ) as MongodbSecrets
  const url = `mongodb://keelson:${appPassword}@mongodb:27017/keelson?replicaSet=rs0&authSource=keelson`
  make('/keys/platform/mongodb.url', () => url, node)

  // Two images with different user numbers read it; no other service mounts this volume.
  make('/keys/postgres/password', newPassword, 0)
  chmodSync('/keys/postgres/password', 0o444)
}

/** Makes a file for one user, unless it exists: an operator's own files stay unchanged. */
function make(path: string, content: () => string, user: number): string {
  const isNew = !existsSync(path)
  const made = makeOnce(path, content)
  if (isNew) chownSync(path, user, user)
  return made
}

function setUp(): void {
  const printed = execFileSync(process.execPath, ['script/setup.ts'], {
    stdio: ['ignore', 'pipe', 'inherit'],
    encoding: 'utf8',
  })
  const { host_token, ...first } = JSON.parse(printed) as {
    email: string
    password: string | null
    host_token: string | null
  }
  if (host_token) writePrivate('/keys/host/token', host_token)
  console.log(JSON.stringify(first))
}

async function workerPolls(): Promise<void> {
  const settings = readSettings('worker')
  const namespace = settings.KEELSON_TEMPORAL_NAMESPACE
  const { Connection } = await import('@temporalio/client')
  const { temporal } = (await import('@temporalio/proto')).default
  const { DescribeTaskQueueMode, TaskQueueType } = temporal.api.enums.v1
  const { workflowService } = await Connection.connect(temporalConnection(settings))
  // All partitions of the queue: with several workers, one may not poll the first, which is the default, for a minute.
  const { versionsInfo } = await workflowService.describeTaskQueue({
    namespace,
    taskQueue: { name: platformQueue },
    apiMode: DescribeTaskQueueMode.DESCRIBE_TASK_QUEUE_MODE_ENHANCED,
    taskQueueTypes: [TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW],
    reportPollers: true,
  })
  const pollers = Object.values(versionsInfo)
    .flatMap(({ typesInfo }) => Object.values(typesInfo ?? {}))
    .flatMap((type) => type.pollers ?? [])
  const here = pollers.some(({ identity }) => identity?.includes(hostname()))
  process.exit(here ? 0 : 1)
}

const [, , command] = process.argv
if (command === 'keys') makeKeys()
if (command === 'setup') setUp()
if (command === 'worker-polls') await workerPolls()
