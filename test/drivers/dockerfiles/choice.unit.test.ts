import { describe, expect, test } from '@jest/globals'
import { dockerfileFor } from '../../../drivers/dockerfiles/choice.ts'

const images = {
  node: 'node:24-slim',
  python: 'python:3.13-slim',
  go: 'golang:1.25',
  run: 'debian:slim',
  composer: 'composer:2',
  php: 'frankenphp:1',
  static: 'caddy:2',
}

/** What is generated for these files. A file without text that matters is an empty string. */
function generate(files: Record<string, string>) {
  const made = dockerfileFor({ paths: Object.keys(files), texts: files }, images)
  if ('nothing' in made) throw new Error(made.nothing)
  return made
}

const json = (value: unknown): string => JSON.stringify(value)
const server = { scripts: { start: 'node server.js' } }

/** Files, the kind that is recognised, lines of the Dockerfile in their order, and words of the reasons. */
const cases: [name: string, Record<string, string>, string, string[], string[]][] = [
  [
    'Node with npm',
    { 'package.json': json(server), 'package-lock.json': '', 'server.js': '' },
    'Node',
    [
      'FROM node:24-slim',
      'COPY package.json package-lock.json ./',
      'RUN --mount=type=cache,target=/root/.npm npm ci --omit=dev',
      'COPY . .',
      'CMD ["/bin/sh","-c","exec node server.js"]',
    ],
    ['package-lock.json: npm installs exactly what it locks', 'the script `start`: node server.js'],
  ],
  [
    'Node with pnpm and a build step',
    {
      'package.json': json({ scripts: { build: 'tsc', start: 'node dist/server.js' } }),
      'pnpm-lock.yaml': '',
    },
    'Node',
    [
      'FROM node:24-slim AS build',
      'RUN corepack enable',
      'COPY package.json pnpm-lock.yaml ./',
      'pnpm install --frozen-lockfile',
      'COPY . .',
      'RUN pnpm run build',
      'RUN pnpm prune --prod --ignore-scripts',
      'FROM node:24-slim',
      'COPY --from=build /app /app',
      'CMD ["/bin/sh","-c","exec node dist/server.js"]',
    ],
    ['pnpm-lock.yaml', '`build`'],
  ],
  [
    'Node with modern Yarn',
    { 'package.json': json({ ...server, packageManager: 'yarn@4.9.1' }), 'yarn.lock': '', '.yarnrc.yml': '' },
    'Node',
    ['COPY package.json yarn.lock .yarnrc.yml ./', 'yarn install --immutable'],
    ['yarn.lock'],
  ],
  [
    'Node with classic Yarn',
    { 'package.json': json(server), 'yarn.lock': '' },
    'Node',
    ['yarn install --frozen-lockfile --production'],
    ['yarn.lock'],
  ],
  [
    'Node without a lock file or scripts',
    { 'package.json': json({}), 'index.js': '' },
    'Node',
    ['COPY package.json ./', 'npm install --omit=dev', 'CMD ["node","index.js"]'],
    ['it has no lock file', 'it has index.js'],
  ],
  [
    'Node of another major version',
    { 'package.json': json({ ...server, engines: { node: '^22.1.0' } }) },
    'Node',
    ['FROM node:22-slim'],
    ['it asks for Node 22'],
  ],
  [
    'Node of any later version',
    { 'package.json': json({ ...server, engines: { node: '>=18' } }) },
    'Node',
    ['FROM node:24-slim'],
    [],
  ],
  [
    'Node with a start script that is more than one command',
    { 'package.json': json({ scripts: { start: 'node migrate.js && node server.js' } }) },
    'Node',
    ['CMD ["npm", "start"]'],
    [],
  ],
  [
    'Node by its Procfile',
    { 'package.json': json(server), Procfile: 'release: x\nweb: node other.js\n' },
    'Node',
    ['CMD ["/bin/sh","-c","exec node other.js"]'],
    ['Procfile: node other.js'],
  ],
  [
    'Node with workspaces',
    { 'package.json': json({ ...server, workspaces: ['a'] }), 'package-lock.json': '' },
    'Node',
    ['WORKDIR /app', 'COPY . .', 'npm ci'],
    [],
  ],
  [
    'Node with scripts of its installation',
    {
      'package.json': json({
        scripts: { ...server.scripts, postinstall: 'prisma generate', prepare: 'husky' },
      }),
      'package-lock.json': '',
    },
    'Node',
    ['WORKDIR /app', 'COPY . .', 'npm pkg delete scripts.prepare && npm ci --omit=dev'],
    ['`postinstall` may use any file'],
  ],
  [
    'a site of Vite',
    {
      'package.json': json({
        scripts: { build: 'vite build', start: 'vite' },
        devDependencies: { vite: '7' },
      }),
      'index.html': '',
    },
    'a Node site',
    [
      'npm run build',
      'FROM caddy:2',
      "'try_files {path} /index.html'",
      'COPY --from=build /app/dist /srv',
      'CMD ["caddy", "run"',
    ],
    ['its dist/ is served as files'],
  ],
  [
    'a site of Create React App',
    {
      'package.json': json({
        scripts: { build: 'react-scripts build', start: 'react-scripts start' },
        dependencies: { 'react-scripts': '5' },
      }),
    },
    'a Node site',
    ['COPY --from=build /app/build /srv'],
    [],
  ],
  [
    'Python with pip and Flask',
    { 'requirements.txt': 'Flask==3.1\ngunicorn==23', 'app.py': '' },
    'Python',
    [
      'FROM python:3.13-slim',
      'COPY requirements.txt ./',
      'pip install --root-user-action=ignore -r requirements.txt',
      'COPY . .',
      'exec gunicorn --bind 0.0.0.0:$PORT app:app',
    ],
    ['requirements.txt', 'Flask with gunicorn'],
  ],
  [
    'Python with uv and FastAPI',
    { 'pyproject.toml': 'dependencies = ["fastapi>=0.1"]', 'uv.lock': '', 'main.py': '' },
    'Python',
    ['COPY pyproject.toml uv.lock ./', 'uv sync --frozen', 'uvicorn --host 0.0.0.0 --port $PORT main:app'],
    ['uv.lock'],
  ],
  [
    'Python with Poetry',
    { 'pyproject.toml': '', 'poetry.lock': '', 'server.py': '' },
    'Python',
    ['poetry install --only main', 'exec python server.py'],
    ['poetry.lock'],
  ],
  [
    'Django',
    { 'requirements.txt': 'django\ngunicorn', 'manage.py': '', 'shop/wsgi.py': '', 'package.json': '{}' },
    'Python',
    ['gunicorn --bind 0.0.0.0:$PORT shop.wsgi'],
    ['Django'],
  ],
  [
    'Go with its program at the top',
    { 'go.mod': '', 'go.sum': '', 'main.go': '' },
    'Go',
    [
      'FROM golang:1.25 AS build',
      'COPY go.mod go.sum ./',
      'go mod download',
      'COPY . .',
      '-o /out/app .',
      'FROM debian:slim',
      'CMD ["app"]',
    ],
    ['main.go'],
  ],
  [
    'Go with its program below cmd',
    { 'go.mod': '', 'cmd/web/main.go': '' },
    'Go',
    ['COPY go.mod ./', '-o /out/app ./cmd/web'],
    ['cmd/web: the only program'],
  ],
  [
    'Go with its modules in a folder',
    { 'go.mod': '', 'go.sum': '', 'main.go': '', 'vendor/modules.txt': '' },
    'Go',
    ['WORKDIR /src\nCOPY . .\nRUN', 'go build'],
    ['vendor/modules.txt'],
  ],
  [
    'Go with a module beside it',
    { 'go.mod': 'replace example.com/a => ./a\n', 'main.go': '', 'a/go.mod': '' },
    'Go',
    ['WORKDIR /src\nCOPY . .\nRUN', 'go mod download', 'go build'],
    ['go.mod replaces a module'],
  ],
  [
    'PHP with Composer',
    { 'composer.json': '{}', 'composer.lock': '', 'public/index.php': '', 'package.json': '{}' },
    'PHP',
    [
      'FROM composer:2 AS build',
      'COPY composer.json composer.lock ./',
      'composer install --no-dev',
      'FROM frankenphp:1',
      'frankenphp php-server --listen :$PORT --root /app/public',
    ],
    ['composer.lock'],
  ],
  [
    'PHP with packages in folders',
    { 'composer.json': json({ repositories: [{ type: 'path', url: 'lib/*' }] }), 'index.php': '' },
    'PHP',
    ['WORKDIR /app\nCOPY . .\nRUN', 'composer install --no-dev'],
    ['packages in folders'],
  ],
  ['PHP alone', { 'index.php': '' }, 'PHP', ['COPY . .', '--root /app"]'], ['it has index.php']],
  ['a site', { 'index.html': '' }, 'static files', ['FROM caddy:2', 'COPY ./ /srv'], ['it has index.html']],
  [
    'a site in a folder',
    { 'README.md': '', 'public/index.html': '' },
    'static files',
    ['COPY ./public/ /srv'],
    ['it has public/index.html'],
  ],
]

describe('a generated Dockerfile', () => {
  test.each(cases)('is made for %s', (_, files, kind, wanted, reasons) => {
    const made = generate(files)
    expect(made.kind).toBe(kind)
    let rest = made.text
    for (const line of wanted) {
      expect(rest).toContain(line)
      rest = rest.slice(rest.indexOf(line) + line.length)
    }
    for (const reason of reasons) expect(made.reasons.join('\n')).toContain(reason)
    for (const image of made.images) expect(Object.values(images)).toContain(image.replace('22', '24'))
  })

  test('leaves out what never belongs into an image, and what the artifact leaves out', () => {
    const { ignore } = generate({ 'index.html': '', '.dockerignore': 'drafts' })
    for (const name of ['.git', '**/node_modules', '.env', 'drafts'])
      expect(ignore.split('\n')).toContain(name)
  })

  test('keeps a command of several lines in one instruction', () => {
    const made = generate({ 'package.json': json({ scripts: { start: 'node "a\nRUN evil"' } }) })
    expect(made.text).not.toMatch(/^RUN evil/m)
  })
})

describe('no Dockerfile is generated', () => {
  test.each([
    ['nothing that is known', { 'notes.txt': '' }, 'there is no package.json'],
    ['a package.json that is damaged', { 'package.json': '{' }, 'not valid JSON'],
    ['a package.json that says nothing', { 'package.json': '{}' }, 'no script `start`'],
    ['Python without a start', { 'requirements.txt': 'flask' }, 'nothing says what to run'],
    [
      'several Go programs',
      { 'go.mod': '', 'cmd/a/main.go': '', 'cmd/b/main.go': '' },
      'several Go programs',
    ],
  ])('for %s, and it says why', (_, files, why) => {
    expect(() => generate(files as Record<string, string>)).toThrow(why)
  })
})
