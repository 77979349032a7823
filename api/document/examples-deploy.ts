import { id } from './example-values.ts'

const nightly = { frequency: '0 3 * * *', timezone: 'Europe/Berlin' }
const task = { name: 'cleanup', ...nightly, command: 'node cleanup.js' }
const storage = { name: 'uploads', mount_path: '/app/uploads' }
const compose = 'services:\n  web:\n    image: nginx:1.29\n    ports: ["80"]\n'

/** Bodies of what is below deploy servers. */
export const deployExamples = {
  createDeployServer: { worker_count: 1, worker_instance_type: 'small' },
  updateDeployServer: { worker_count: 2 },
  replaceDeployServerMachine: { discard_volumes: false },
  logInToDeployServer: { login: 'root', password: 'the-password-of-its-credentials' },
  createApplication: {
    name: 'shop',
    image: 'shop',
    tag: 'v1',
    port: 8080,
    envs: { LOG_LEVEL: 'info' },
    deploy: true,
  },
  updateApplication: { tag: 'v2', replicas: 2 },
  deployApplication: { tag: 'v2', message: 'New prices' },
  setApplicationEnvs: { envs: { LOG_LEVEL: 'debug' } },
  createApplicationScheduledTask: task,
  updateApplicationScheduledTask: { enabled: false },
  createApplicationStorage: storage,
  createDatabaseStorage: { name: 'extra', mount_path: '/extra' },
  createDatabase: { name: 'orders', type: 'postgresql', memory_mib: 512 },
  updateDatabase: { memory_mib: 1024 },
  restoreDatabase: { execution_id: id },
  upgradeDatabase: { version: '17' },
  createDatabaseBackup: { name: 'nightly', ...nightly, keep_count: 7 },
  updateDatabaseBackup: { keep_count: 14 },
  backUpDatabase: {},
  createBackupTarget: {
    name: 'archive',
    endpoint: 'https://s3.eu-central-1.amazonaws.com',
    region: 'eu-central-1',
    bucket: 'example-backups',
    access_key_id: 'the-id-of-a-key',
    secret_access_key: 'the-key-itself',
  },
  updateBackupTarget: { prefix: 'orders/' },
  createService: { name: 'wiki', docker_compose: compose },
  updateService: { docker_compose: compose, dry_run: true },
  createServiceStorage: { ...storage, container: 'web' },
  createServiceScheduledTask: { ...task, container: 'web' },
  updateServiceScheduledTask: { enabled: false },
  createApplicationDomain: { name: 'shop.example.com' },
  createArtifact: { name: 'shop', upload: { size_bytes: 1_048_576 } },
  createBuild: { artifact_id: id, image: 'shop', tag: 'v2' },
  createEventSubscription: {
    name: 'chat',
    kinds: ['application.deployed', 'application.deploy_failed'],
    url: 'https://chat.example.com/hooks/deploys',
  },
  updateEventSubscription: { enabled: false },
}
