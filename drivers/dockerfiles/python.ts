import {
  type BaseImages,
  executed,
  firstOf,
  type Found,
  type Generated,
  has,
  lines,
  type Nothing,
  procfile,
} from './dockerfile.ts'

const pip = 'RUN --mount=type=cache,target=/root/.cache/pip pip install --root-user-action=ignore'

/** Python by its lock files and manifests. */
export function forPython(found: Found, images: BaseImages): Generated | Nothing {
  const image = images['python'] ?? ''
  const start = startOf(found)
  if (!start)
    return {
      nothing:
        'it is Python, but nothing says what to run: add a Procfile with `web: COMMAND`, or main.py, app.py or server.py',
    }
  const { install, reason, path = '' } = installOf(found)
  const text = lines(
    `FROM ${image}`,
    'WORKDIR /app',
    `ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1${path && ` PATH=${path}:$PATH`}`,
    ...install,
    'COPY . .',
    executed(start.command),
  )
  return { kind: 'Python', reasons: [reason, start.reason], text, images: [image] }
}

function installOf(found: Found): { install: string[]; reason: string; path?: string } {
  if (has(found, 'uv.lock'))
    return {
      install: [
        `${pip} uv`,
        'COPY pyproject.toml uv.lock ./',
        'RUN --mount=type=cache,target=/root/.cache/uv uv sync --frozen --no-dev --no-install-project',
      ],
      reason: 'uv.lock: uv installs exactly what it locks',
      path: '/app/.venv/bin',
    }
  if (has(found, 'poetry.lock'))
    return {
      install: [
        `${pip} poetry`,
        'COPY pyproject.toml poetry.lock ./',
        'RUN poetry config virtualenvs.create false && poetry install --only main --no-root --no-interaction',
      ],
      reason: 'poetry.lock: Poetry installs exactly what it locks',
    }
  if (has(found, 'Pipfile.lock'))
    return {
      install: [`${pip} pipenv`, 'COPY Pipfile Pipfile.lock ./', 'RUN pipenv sync --system'],
      reason: 'Pipfile.lock: Pipenv installs exactly what it locks',
    }
  if (has(found, 'requirements.txt'))
    return {
      install: ['COPY requirements.txt ./', `${pip} -r requirements.txt`],
      reason: 'requirements.txt: pip installs it',
    }
  if (has(found, 'pyproject.toml'))
    return {
      install: ['COPY . .', `${pip} .`],
      reason: 'pyproject.toml without a lock file: pip installs it',
    }
  return { install: [], reason: 'it has Python files and no manifest: nothing is installed' }
}

function startOf(found: Found): { command: string; reason: string } | null {
  const web = procfile(found)
  if (web) return { command: web, reason: `Procfile: ${web}` }
  const manifests = ['requirements.txt', 'pyproject.toml', 'Pipfile', 'uv.lock', 'poetry.lock']
  const text = manifests.map((name) => found.texts[name] ?? '').join('\n')
  const uses = (name: string): boolean => new RegExp(`(^|["'\\s])${name}\\b`, 'im').test(text)
  const at = '0.0.0.0'
  if (has(found, 'manage.py')) {
    const project = found.paths.map((path) => /^([\w-]+)\/wsgi\.py$/.exec(path)?.[1]).find(Boolean)
    if (project && uses('gunicorn'))
      return {
        command: `gunicorn --bind ${at}:$PORT ${project}.wsgi`,
        reason: `Django (manage.py, ${project}/wsgi.py) with gunicorn`,
      }
    return {
      command: `python manage.py runserver ${at}:$PORT`,
      reason: 'Django (manage.py) with its development server: add gunicorn for production',
    }
  }
  const file = firstOf(found, ['main.py', 'app.py', 'server.py', 'app/main.py', 'src/main.py', 'wsgi.py'])
  if (!file) return null
  const name = file.slice(0, -3).replaceAll('/', '.')
  if (uses('fastapi') || uses('starlette'))
    return {
      command: `uvicorn --host ${at} --port $PORT ${name}:app`,
      reason: `FastAPI or Starlette: uvicorn serves \`app\` of ${file}`,
    }
  if (uses('flask'))
    return uses('gunicorn')
      ? {
          command: `gunicorn --bind ${at}:$PORT ${name}:app`,
          reason: `Flask with gunicorn: \`app\` of ${file}`,
        }
      : {
          command: `flask --app ${name} run --host ${at} --port $PORT`,
          reason: `Flask with its development server (${file}): add gunicorn for production`,
        }
  return { command: `python ${file}`, reason: `it has ${file}` }
}
